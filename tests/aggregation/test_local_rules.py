"""What a method changes in a client's local step, and what it asks clients to compare, on the real fleet."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedmux
from conftest import experiment_of, round_state, table, task_of
from fedmux.aggregation import LocalRule, Updates
from fedmux.aggregation.proximal import Proximal
from fedmux.aggregation.scaffold import Scaffold
from fedmux.aggregation.stale import Stale
from fedmux.aggregation.store import ClientStore
from fedmux.fleet import simulated
from fedmux.fleet.batches import batches
from fedmux.fleet.local import TightLoop, reference_update
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.methods import find
from fedmux.model import Model
from fedmux.population import Population
from fedmux.tasks.task import LocalSgd, Task
from stepping import NOBODY, jobs

SIZES = np.array([9, 4, 16])
RATE = 0.05


def make_task(**local: Any) -> Task:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    x, y = torch.randn(int(SIZES.sum()), 5), torch.randint(3, (int(SIZES.sum()),))
    own = LocalSgd(**{"batch_size": 4, "epochs": 3, **local})
    return task_of(module, x, y, SIZES, local=own, learning_rate=lambda round: RATE)


PEOPLE = Population(np.ones(3, int), SIZES[:, None], np.ones((3, 1), bool))
EVERYBODY = jobs(*((client, 0, 1, 1.0, 1) for client in range(3)))


class Scaled(LocalRule):
    """A rule that uses everything a rule is given."""

    def corrections(self, task: int, clients: np.ndarray) -> Tensor:
        return torch.linspace(-1, 1, 57) * (torch.from_numpy(clients)[:, None] + 1)

    def gradient(self, gradient: Tensor, weights: Tensor, start: Tensor, correction: Tensor | None) -> Tensor:
        assert correction is not None
        return 0.5 * gradient + 0.1 * weights.abs() * correction + (weights - start)


@pytest.mark.parametrize(
    "local", [{}, {"momentum": 0.9, "weight_decay": 0.01, "clip": 0.8}], ids=["plain", "everything"]
)
@pytest.mark.parametrize("rule", [Proximal(5.0), Scaled()], ids=["proximal", "scaled"])
def test_the_tight_loop_equals_the_reference_loop_under_a_rule(rule, local):
    task = make_task(**local)
    assert task.layout.size == 57
    model = task.layout.read()
    loop = TightLoop(task, 0, seed=2)
    for client in range(3):
        update, _ = loop.update(model, client, 1, rule)
        wanted, _ = reference_update(task, 0, 2, model, client, 1, rule)
        torch.testing.assert_close(update, wanted, rtol=1e-4, atol=1e-6)
        without, _ = loop.update(model, client, 1)
        assert (update - without).norm() > 1e-3 * without.norm()


@pytest.mark.parametrize("mu", [0.0, 0.5, 5.0])
def test_fedprox_trains_on_a_loss_with_the_pull_written_out(mu):
    task = make_task()
    model = task.layout.read()
    rule = find("fedprox")(mu=mu).aggregator().local_rule
    fleet = SimulatedFleet([task], seed=2)
    (chunk,) = fleet.train([model], EVERYBODY, 0, rule)
    for client, update in enumerate(chunk.parameters):
        weights = model.parameters.clone().requires_grad_()
        for rows in batches(task, 0, client, 0, seed=2):
            named = dict(zip(task.layout.parameters, task.layout.views(weights)))
            outputs = torch.func.functional_call(task.module, named, (task.x[rows],))
            loss = nn.functional.cross_entropy(outputs, task.y[rows])
            loss = loss + mu / 2 * ((weights - model.parameters) ** 2).sum()
            (gradient,) = torch.autograd.grad(loss, weights)
            weights = (weights - RATE * gradient).detach().requires_grad_()
        torch.testing.assert_close(update, model.parameters - weights.detach(), rtol=1e-4, atol=1e-6)


def test_a_stronger_pull_keeps_clients_closer():
    task = make_task()
    model = task.layout.read()
    fleet = SimulatedFleet([task], seed=2)
    lengths = []
    for mu in (0.0, 1.0, 10.0):
        (chunk,) = fleet.train([model], EVERYBODY, 0, Proximal(mu))
        lengths.append(chunk.parameters.norm(dim=1))
    assert (lengths[0] > lengths[1]).all() and (lengths[1] > lengths[2]).all()


def test_scaffold_on_the_fleet_steps_along_corrected_gradients():
    task = make_task()
    model = task.layout.read()
    fleet = SimulatedFleet([task], seed=2)
    aggregator = Scaffold(ClientStore("float32", "memory"))
    rates = {"learning_rates": np.array([RATE])}
    sent = []
    models = [model]
    for number in range(2):
        state = round_state(PEOPLE, round=number, **rates)
        aggregator.prepare(state, models)
        aggregator.begin(state, EVERYBODY, models)
        before = [aggregator.corrections(0, np.array([client]))[0] for client in range(3)]
        for client in range(3):
            wanted, _ = reference_update(task, 0, 2, models[0], client, number, aggregator.local_rule)
            sent.append(wanted)
        for chunk in fleet.train(models, EVERYBODY, number, aggregator.local_rule):
            torch.testing.assert_close(chunk.parameters, torch.stack(sent[-3:]), rtol=1e-4, atol=1e-6)
            aggregator.add(chunk)
        models = aggregator.finish(models)
        for client, steps in enumerate([9, 3, 12]):  # three epochs of ceil(n / 4) batches
            # c_i+ = c_i - c + G / (K eta); what was sent is c - c_i.
            wanted = sent[-3 + client] / (steps * RATE) - before[client]
            torch.testing.assert_close(
                aggregator.stale(0, np.array([client]))[0], wanted, rtol=1e-4, atol=1e-5
            )
    assert all(correction.norm() > 0.01 for correction in before)


def with_memory(fleet: SimulatedFleet, model) -> Stale:
    """Clients 0 and 1 have sent their updates of round 0; client 2 has not."""
    aggregator = Stale(ClientStore("float32", "memory"))
    state = round_state(PEOPLE)
    aggregator.prepare(state, [model])
    two = jobs((0, 0, 1, 0.5, 1), (1, 0, 1, 0.5, 1))
    aggregator.begin(state, two, [model])
    for chunk in fleet.train([model], two, 0):
        aggregator.add(chunk)
    aggregator.finish([model])
    return aggregator


@pytest.mark.parametrize("signal", ["residual", "projection"])
def test_clients_compare_with_what_they_sent_last(signal):
    task = make_task()
    fleet = SimulatedFleet([task], seed=2)
    model = task.layout.read()
    aggregator = with_memory(fleet, model)
    asked = np.ones((3, 1), bool)
    report = fleet.signals([model], {signal}, 1, asked, aggregator.stale)
    for client in range(3):
        update, _ = reference_update(task, 0, 2, model, client, 1)
        last = reference_update(task, 0, 2, model, client, 0)[0] if client < 2 else torch.zeros(57)
        beta = 1.0 if signal == "residual" else 0.0 if client == 2 else float(update @ last / (last @ last))
        assert report.norms[client, 0] == pytest.approx(float((update - beta * last).norm()), rel=1e-3)
        if signal == "projection":
            assert report.betas[client, 0] == pytest.approx(beta, rel=1e-3)
    assert (report.betas is None) == (signal == "residual")


@pytest.mark.parametrize("keep", [0, 2**30])
def test_updates_made_for_a_signal_are_those_that_are_sent(keep, monkeypatch):
    monkeypatch.setattr(simulated, "KEEP_BYTES", keep)
    fleet = SimulatedFleet([make_task()], seed=2)
    model = fleet.tasks[0].layout.read()
    trained = []
    inner = TightLoop.update
    monkeypatch.setattr(
        TightLoop,
        "update",
        lambda self, *rest, **out: (trained.append(rest[1]), inner(self, *rest, **out))[1],
    )
    report = fleet.signals([model], {"norm"}, 0, np.ones((3, 1), bool), None)
    (chunk,) = fleet.train([model], EVERYBODY, 0)
    assert chunk.parameters.norm(dim=1).double().numpy() == pytest.approx(report.norms[:, 0], rel=1e-6)
    assert trained == ([0, 1, 2] if keep else [0, 1, 2, 0, 1, 2])
    fleet.signals([model], {"norm"}, 0, np.ones((3, 1), bool), None)
    assert not list(fleet.train([model], NOBODY, 0))
    (later,) = fleet.train([model], EVERYBODY, 1)  # what nobody sent is not sent in another round
    (fresh,) = SimulatedFleet([make_task()], seed=2).train([model], EVERYBODY, 1)
    assert torch.equal(later.parameters, fresh.parameters)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_scaffold_s_variate_is_a_mean_of_gradients_also_with_momentum(momentum):
    """Where every gradient is the same, the variate is that gradient, however far momentum carried it."""
    state = round_state(PEOPLE, learning_rates=np.array([RATE]), momenta=np.array([momentum]))
    aggregator, models = Scaffold(ClientStore("float32", "memory")), [Model(torch.zeros(4), torch.zeros(0))]
    aggregator.prepare(state, models)
    aggregator.begin(state, EVERYBODY, models)
    gradient, steps = torch.tensor([1.0, -2.0, 0.5, 3.0]), np.array([1, 4, 30])
    moved = torch.zeros(3, 4)
    for client, count in enumerate(steps):
        velocity = torch.zeros(4)
        for _ in range(count):
            velocity = momentum * velocity + gradient
            moved[client] += RATE * velocity
    none = torch.zeros(3, 0, dtype=torch.float64)
    aggregator.add(Updates(0, np.arange(3), moved, none, steps))
    torch.testing.assert_close(aggregator.store.get(0, np.arange(3)), gradient.expand(3, 4))


@pytest.mark.parametrize(
    "local", [{"momentum": 0.9}, {"weight_decay": 0.05}, {"momentum": 0.9, "clip": 0.3}], ids=str
)
def test_scaffold_does_as_well_as_fedvarp_with_momentum_weight_decay_and_clipping(local, tmp_path):
    losses = []
    for method in ("fedvarp", "scaffold"):
        small = table(method=method, rounds=40, evaluation={"every": 40, "clients": False})
        for task in small["task"]:
            task.update({"local_epochs": 5, "learning_rate": 0.03, **local})
        run = fedmux.run(experiment_of(**small), tmp_path / method)
        assert "diverged" not in run.summary
        losses.append(np.mean([task["last_loss"] for task in run.summary["tasks"].values()]))
    assert losses[1] < 1.1 * losses[0]
