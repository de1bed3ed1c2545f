"""Every way to train a client gives the update of the plain loop; signals and scores mean what they say."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from conftest import task_of
from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment
from fedmux.distributed.team import Team
from fedmux.fleet.engine import Engine
from fedmux.fleet.local import TightLoop, reference_update
from fedmux.fleet.scoring import client_means
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.fleet.stacked import Stacked
from fedmux.model import Layout, Model
from fedmux.tasks import build
from fedmux.tasks.losses import squared_error
from fedmux.tasks.task import LocalSgd, Task
from refusals import refused

SIZES = [7, 1, 0, 20, 32]  # ragged last batches, one point, none


class WithEverything(nn.Module):
    """Dropout, batch statistics, an integer counter, a frozen and an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.norm = nn.BatchNorm1d(5)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(5, 4)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(torch.relu(self.norm(self.first(x)))))


def make_task(module: nn.Module, x: torch.Tensor, classes: int, **local: Any) -> Task:
    generator = torch.Generator().manual_seed(3)
    y = torch.randint(classes, (len(x),), generator=generator)
    own = LocalSgd(**{"batch_size": 8, "epochs": 2, **local})
    return task_of(module, x, y, SIZES, local=own, learning_rate=lambda round: 0.01 / (1 + round))


def image_task(name: str, **local: Any) -> Task:
    torch.manual_seed(0)
    # Groups of few pixels would be normalised by almost nothing: there float32 alone moves updates by 100 %.
    shape = {"char-lstm": (80,), "resnet18": (1, 16, 16)}.get(name, (1, 8, 8))
    options = (
        {"hidden": 6, "layers": 2}
        if name == "char-lstm"
        else {"width": 8, "groups": 1}
        if name == "resnet18"
        else {}
    )
    outputs = 80 if name == "char-lstm" else 4
    x = torch.randint(80, (sum(SIZES), *shape)) if name == "char-lstm" else torch.randn(sum(SIZES), *shape)
    return make_task(build(name, input_shape=shape, outputs=outputs, options=options), x, outputs, **local)


def own_task(**local: Any) -> Task:
    torch.manual_seed(0)
    return make_task(WithEverything(), torch.randn(sum(SIZES), 6), 4, **local)


LOCAL = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.5, "weight_decay": 0.01, "clip": 0.5},
    {"batch_size": 64, "epochs": 1},
]

cuda = pytest.param("cuda", marks=pytest.mark.cuda)
ALONE = ["loop", "stacked", pytest.param("cuda-loop", marks=pytest.mark.cuda), cuda]
PATHS = [*ALONE, "workers", "stacked-workers"]


def engine_of(path: str, **options: Any) -> Engine:
    device = torch.device("cuda", 0) if path.startswith("cuda") else torch.device("cpu")
    stacked = path in ("stacked", "stacked-workers", "cuda")
    return Engine(device, local="stacked" if stacked else "loop", **options)


class Part(Team):
    """One of three processes; their training needs no talk."""

    size = 3

    def __init__(self, rank: int) -> None:
        self.rank = rank


def fleets(tasks: list[Task], seed: int, path: str, **options: Any) -> list[SimulatedFleet]:
    """One fleet, or those of a team's processes, with a task of their own each."""
    engine = engine_of(path, **options)
    if not path.endswith("workers"):
        return [SimulatedFleet(tasks, seed, engine)]
    return [
        SimulatedFleet(copy.deepcopy(tasks), seed, engine, Part(rank), sticky=path == "workers")
        for rank in range(3)
    ]


def everybody(*clients: int, task: int = 0) -> Assignment:
    ones = np.ones(len(clients))
    return Assignment(np.array(clients), np.full(len(clients), task), ones.astype(int), ones, ones)


def trained(fleet: Any, model: Model, jobs: Assignment, round: int, rule: Any = None) -> Any:
    """Updates of one task's jobs in the jobs' order, on the CPU; of a fleet, or of those of a team."""
    result = torch.full((len(jobs), len(model.parameters)), float("nan"))
    for each in fleet if isinstance(fleet, list) else [fleet]:
        for chunk in each.train([model], jobs, round, rule):
            rows = torch.from_numpy(chunk.rows)
            assert result[rows].isnan().all()  # nobody trains twice
            result[rows] = chunk.parameters.cpu()
    return result


def distance(update: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((update - wanted).norm() / wanted.norm().clamp(min=1e-9))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("local", LOCAL, ids=["plain", "momentum", "everything", "one-batch"])
@pytest.mark.parametrize("name", ["cnn-small", "mlp", "resnet18", "char-lstm"])
def test_every_way_to_train_equals_the_reference_loop(name: str, local: dict[str, Any], path: str) -> None:
    task = image_task(name, **local)
    reference, start = copy.deepcopy(task), task.layout.read()
    team = fleets([task], 4, path)
    for fleet in team:
        assert isinstance(fleet.trainers[0], Stacked if fleet.engine.stacks else TightLoop), (
            fleet.journal.notices
        )
    model = team[0].tasks[0].layout.read()
    for round in (2, 3):
        updates = trained(team, model, everybody(0, 1, 2, 3, 4), round)
        for client, update in enumerate(updates):
            wanted, _ = reference_update(reference, 0, 4, start, client, round)
            # In float32 a ReLU of a deep network may fall on the other side of zero, which moves the update.
            assert distance(update, wanted) < (0.1 if name == "resnet18" else 1e-3)
            assert (update.norm() > 0) == (SIZES[client] > 0)


@pytest.mark.parametrize("name", ["cnn", "cnn-small", "mlp", "resnet18", "char-lstm"])
def test_in_float64_stacked_gradients_of_filled_up_batches_are_exact(name: str) -> None:
    task = image_task(name)
    module = task.module.double().train()
    double = dataclasses.replace(task, module=module)
    stacked = Stacked(double, 0, 0, engine_of("stacked"))
    weights = tuple(p.detach().clone() for p in double.layout.parameters.values())
    x = task.x[:8] if name == "char-lstm" else task.x[:8].double()
    x, y = x.view(2, 4, *x.shape[1:]), task.y[:8].view(2, 4)
    shares = torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0], [0.25] * 4], dtype=torch.float64)
    both = stacked.gradients(tuple(torch.stack([w, 1.1 * w]) for w in weights), x, y, shares)
    for client, scale, points in ((0, 1.0, 3), (1, 1.1, 4)):
        with torch.no_grad():
            for parameter, weight in zip(double.layout.parameters.values(), weights):
                parameter.copy_(weight * scale)
        loss = double.loss(module(x[client, :points]), y[client, :points]).mean()
        alone = torch.autograd.grad(loss, list(double.layout.parameters.values()))
        for mine, wanted in zip(both, alone):
            torch.testing.assert_close(mine[client], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("path", ALONE)
def test_local_rules_hold_on_every_way_to_train(path: str) -> None:
    class Pull(LocalRule):
        def corrections(self, task: int, clients: np.ndarray) -> torch.Tensor:
            size = fleet.tasks[0].layout.size
            vector = torch.linspace(-1, 1, size) * (torch.from_numpy(clients)[:, None] + 1)
            return vector.to(fleet.tasks[0].x.device)

        def gradient(self, gradient, weights, start, correction):
            return 0.5 * gradient + 0.1 * weights.abs() * correction + (weights - start)

    task = image_task("cnn-small", momentum=0.5)
    reference, start, rule = copy.deepcopy(task), task.layout.read(), Pull()
    fleet = SimulatedFleet([task], seed=4, engine=engine_of(path))
    model = fleet.tasks[0].layout.read()
    mixed = trained(fleet, model, everybody(3, 4), 0, rule), trained(fleet, model, everybody(3, 4), 0)
    for updates, applied in zip(mixed, (rule, None)):
        for client, update in zip((3, 4), updates):
            fleet_rule = None if applied is None else OnCpu(applied)
            wanted, _ = reference_update(reference, 0, 4, start, client, 0, fleet_rule)
            torch.testing.assert_close(update, wanted, rtol=1e-3, atol=3e-6)


class OnCpu(LocalRule):
    """A rule whose corrections lie on a device, for the reference loop."""

    def __init__(self, inner: LocalRule) -> None:
        self.inner, self.gradient = inner, inner.gradient  # type: ignore[method-assign]

    def corrections(self, task: int, clients: np.ndarray) -> torch.Tensor:
        found = self.inner.corrections(task, clients)
        assert found is not None
        return found.cpu()


@pytest.mark.parametrize("path", ALONE)
def test_many_clients_train_in_bounded_chunks_and_none_is_lost(path: str, monkeypatch) -> None:
    task = image_task("mlp")
    monkeypatch.setattr("fedmux.fleet.stacked.SIZES", (1, 2))
    monkeypatch.setattr("fedmux.fleet.local.CHUNK_BYTES", 2 * 4 * task.layout.size)
    reference, start = copy.deepcopy(task), task.layout.read()
    fleet = SimulatedFleet([task], seed=0, engine=engine_of(path))
    model = fleet.tasks[0].layout.read()
    chunks = list(fleet.train([model], everybody(0, 1, 3, 4), 0))
    assert all(len(chunk.rows) <= 2 for chunk in chunks)
    assert sorted(row for chunk in chunks for row in chunk.rows) == [0, 1, 2, 3]
    for chunk in chunks:
        for row, update in zip(chunk.rows, chunk.parameters):
            wanted, _ = reference_update(reference, 0, 0, start, (0, 1, 3, 4)[row], 0)
            torch.testing.assert_close(update.cpu(), wanted, rtol=1e-3, atol=3e-6)


def test_chunks_fill_the_sizes_that_stacks_have(monkeypatch) -> None:
    """12 clients where 8 fit: 8 and 4, since 6 and 6 would be computed as 8 and 8."""
    task = dataclasses.replace(image_task("mlp"), offsets=np.arange(13) * 4)
    monkeypatch.setattr("fedmux.fleet.stacked.CHUNK_BYTES", 8 * 4 * task.layout.size)
    fleet = SimulatedFleet([task], seed=0, engine=engine_of("stacked"))
    chunks = list(fleet.train([task.layout.read()], everybody(*range(12)), 0))
    assert [len(chunk.rows) for chunk in chunks] == [8, 4]


@pytest.mark.parametrize("device", ["cpu", cuda])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_lower_precision_stays_near_and_weights_stay_float32(precision: Any, device: str) -> None:
    task = image_task("cnn-small")
    reference, start = copy.deepcopy(task), task.layout.read()
    path = "stacked" if device == "cpu" else device
    fleet = SimulatedFleet([task], seed=4, engine=engine_of(path, precision=precision))
    updates = trained(fleet, fleet.tasks[0].layout.read(), everybody(0, 3, 4), 0)
    assert updates.dtype == torch.float32
    for client, update in zip((0, 3, 4), updates):
        wanted, _ = reference_update(reference, 0, 4, start, client, 0)
        assert distance(update, wanted) < 0.1


class Leftover(nn.Module):
    """Looks at the values of its inputs, which no stack can do."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x) if float(x.sum()) > -1e9 else self.last(-x)


class Inner(nn.Module):
    """Takes a step on its convolution's weights before it uses them: a second derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 1, 2, 2))
        self.last = nn.Linear(4, 4)
        self.image = nn.Parameter(torch.randn(1, 1, 2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.func.grad(lambda w: nn.functional.conv2d(self.image, w).tanh().square().sum())
        stepped = self.weight - 0.3 * inner(self.weight)
        return self.last(nn.functional.conv2d(x.unflatten(1, (1, 2, 3)), stepped).flatten(1))


@pytest.mark.parametrize(
    "module, reason",
    [
        (Inner, "different gradients"),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), "changes its buffers"),
        (
            lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, track_running_stats=False)),
            "independent",
        ),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)), "draws random numbers"),
        (Leftover, "vmap"),
    ],
    ids=["second-derivative", "buffers", "batch-statistics", "dropout", "control-flow"],
)
def test_a_module_that_cannot_be_stacked_runs_in_the_loop_and_says_so_once(module: Any, reason: str) -> None:
    torch.manual_seed(0)
    task = make_task(module(), torch.randn(sum(SIZES), 6), 4)
    fleet = SimulatedFleet([task], seed=4, engine=engine_of("stacked"))
    assert isinstance(fleet.trainers[0], TightLoop)
    assert (
        len(fleet.journal.notices) == 1
        and 'task "test"' in fleet.journal.notices[0]
        and reason in fleet.journal.notices[0]
    )
    model = task.layout.read()
    update = trained(fleet, model, everybody(3), 0)[0]
    torch.testing.assert_close(update, reference_update(task, 0, 4, model, 3, 0)[0], rtol=1e-4, atol=1e-6)


def test_the_losses_of_a_round_come_from_the_scores_of_the_last_one(monkeypatch) -> None:
    fleet = SimulatedFleet([image_task("mlp")], seed=0)
    model, asked = fleet.tasks[0].layout.read(), np.array([[True], [True], [False], [True], [True]])
    passes = []
    inner = fleet.scorer._forward
    monkeypatch.setattr(
        fleet.scorer, "_forward", lambda *given: (passes.append(len(given[2])), inner(*given))[1]
    )
    accuracies = fleet.client_scores([model], asked).score
    fewer = asked & (np.arange(5) != 4)[:, None]
    losses = fleet.signals([model], {"loss"}, 0, fewer, None).losses
    assert passes == [60] and np.isnan(losses[[2, 4], 0]).all()
    fresh = SimulatedFleet([image_task("mlp")], seed=0)
    assert np.array_equal(losses, fresh.signals([model], {"loss"}, 0, fewer, None).losses, equal_nan=True)
    assert np.array_equal(accuracies, fresh.client_scores([model], asked).score, equal_nan=True)
    fleet.signals([Model(model.parameters + 1, model.buffers)], {"loss"}, 0, fewer, None)
    assert passes == [60, 28]  # other weights, another pass


def test_dropout_buffers_frozen_and_unused_parameters_are_treated_as_by_the_reference() -> None:
    task = own_task()
    model = task.layout.read()
    loop = TightLoop(task, 0, seed=1)
    update, buffers = loop.update(model, 3, round=0)
    wanted, wanted_buffers = reference_update(task, 0, 1, model, 3, 0)
    torch.testing.assert_close(update, wanted, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(buffers, wanted_buffers)
    assert buffers[-1] == 2 * 3  # num_batches_tracked: two epochs of three batches
    again, _ = loop.update(model, 3, round=0)
    assert torch.equal(update, again)  # the second pass of a two-pass method repeats the first
    other, _ = loop.update(model, 3, round=1)
    assert not torch.equal(update, other)


def test_updates_come_back_for_every_job_in_order_and_in_bounded_chunks(monkeypatch) -> None:
    task = image_task("mlp")
    monkeypatch.setattr("fedmux.fleet.local.CHUNK_BYTES", 2 * 4 * task.layout.size)
    fleet = SimulatedFleet([task, image_task("mlp")], seed=0)
    models = [t.layout.read() for t in fleet.tasks]
    client, number = np.array([0, 1, 3, 0, 4]), np.array([0, 0, 0, 1, 1])
    ones = np.ones(5)
    chunks = list(fleet.train(models, Assignment(client, number, ones.astype(int), ones, ones), 0))
    assert [len(chunk.rows) for chunk in chunks] == [2, 1, 2]
    assert np.concatenate([chunk.rows for chunk in chunks]).tolist() == [0, 1, 2, 3, 4]
    for chunk in chunks:
        for row, update in zip(chunk.rows, chunk.parameters):
            wanted, _ = reference_update(
                fleet.tasks[chunk.task], chunk.task, 0, models[chunk.task], int(client[row]), 0
            )
            torch.testing.assert_close(update, wanted, rtol=1e-4, atol=1e-6)


def test_signals_are_the_clients_own_losses_and_norms() -> None:
    task = own_task()
    fleet = SimulatedFleet([task], seed=0)
    model = task.layout.read()
    available = np.array([[True], [False], [False], [True], [True]])
    signals = fleet.signals([model], {"loss", "norm"}, 0, available, stale=None)
    assert signals.losses is not None and signals.norms is not None
    assert np.isnan(signals.losses[[1, 2], 0]).all() and np.isnan(signals.norms[[1, 2], 0]).all()
    task.module.eval()
    for client in (0, 3, 4):
        rows = slice(task.offsets[client], task.offsets[client + 1])
        with torch.no_grad():
            task.layout.write(model)
            wanted = nn.functional.cross_entropy(task.module(task.x[rows]), task.y[rows])
        assert signals.losses[client, 0] == pytest.approx(float(wanted), rel=1e-5)
        update, _ = reference_update(task, 0, 0, model, client, 0)
        assert signals.norms[client, 0] == pytest.approx(float(update.norm()), rel=1e-4)


def test_scores_are_means_over_points() -> None:
    task = image_task("mlp")
    fleet = SimulatedFleet([task], seed=0)
    model = task.layout.read()
    with torch.no_grad():
        right = (task.module(task.x).argmax(1) == task.y).double()
    clients = fleet.client_scores([model], np.array([[True]] * 5)).score
    assert clients[0, 0] == pytest.approx(float(right[:7].mean()))
    assert np.isnan(clients[2, 0])
    assert fleet.evaluate([model], "test").score[0] == pytest.approx(float(right[:5].mean()))


@pytest.mark.parametrize("local", ["loop", "stacked"])
def test_what_is_not_finite_is_left_out_and_reports_of_it_are_named(local: str) -> None:
    """Of three clients one has a point that is not finite; its neighbours in a stack are not touched."""
    task = image_task("mlp")
    fleet = SimulatedFleet([task], seed=0, engine=engine_of(local))
    model = task.layout.read()
    ones = np.ones(3)
    jobs = Assignment(np.array([0, 3, 4]), np.zeros(3, int), ones.astype(int), ones, ones)
    wanted = {int(row): update for chunk in fleet.train([model], jobs, 0) for row, update in rows_of(chunk)}
    task.x[task.offsets[3]] = float("nan")
    found = {int(row): update for chunk in fleet.train([model], jobs, 0) for row, update in rows_of(chunk)}
    assert sorted(found) == [0, 2] and all(torch.equal(found[row], wanted[row]) for row in found)
    signals = fleet.signals(
        [model], {"loss", "norm"}, 0, np.array([[True]] * 5) & (task.sizes > 0)[:, None], None
    )
    assert signals.silent.tolist() == [[False], [False], [False], [True], [False]]
    assert np.isnan(signals.losses[3, 0]) and np.isnan(signals.norms[3, 0])
    assert np.isfinite(signals.norms[[0, 1, 4], 0]).all()
    assert [str(failure) for failure in fleet.journal.failures] == [
        'client 3, task "test": query.signals: the loss is not finite'
    ]


def rows_of(chunk: Updates) -> Iterator[tuple[int, torch.Tensor]]:
    return zip(chunk.rows.tolist(), chunk.parameters.clone())


def test_a_module_that_fails_on_a_client_is_named() -> None:
    fleet = SimulatedFleet([own_task()], seed=0)  # batch statistics of a single point do not exist
    one = np.ones(1)
    job = Assignment(np.array([1]), np.array([0]), one.astype(int), one, one)
    with refused(('task "test"', "client 1"), "ValueError: Exp"):
        list(fleet.train([fleet.tasks[0].layout.read()], job, 0))


def test_client_means_are_over_each_client_s_own_points() -> None:
    means = client_means(torch.tensor([[1.0, 3.0, 5.0], [2.0, 2.0, 0.0]]), np.array([0, 2, 2, 3]))
    assert means.tolist() == [[2, 0, 5], [2, 0, 0]]


@pytest.mark.parametrize("large", [2.0**60, float("inf"), float("nan")])
def test_one_client_s_enormous_loss_hides_nobody_else_s(large: float) -> None:
    losses = torch.tensor([[3.0, 5.0, large, 12.75, 5.0, 7.0]])
    means = client_means(losses, np.array([0, 2, 3, 4, 6]))[0]
    assert means[[0, 2, 3]].tolist() == [4, 12.75, 6]
    assert means[1] == large or np.isnan(large)


def test_a_regression_task_with_one_enormous_target_reports_every_client_s_own_loss() -> None:
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.normal(0, 1, (60, 3)).astype(np.float32)), torch.zeros(60)
    y[SIZES[0]] = 1e9  # client 1's only point
    task = task_of(nn.Linear(3, 1), x, y, SIZES, loss=squared_error)
    losses = (
        SimulatedFleet([task], seed=0)
        .signals([task.layout.read()], {"loss"}, 0, np.ones((5, 1), bool), None)
        .losses[:, 0]
    )
    with torch.no_grad():
        wanted = [
            float(squared_error(task.module(part), target).double().mean())
            for part, target in zip(x.split(SIZES), y.split(SIZES))
        ]
    assert losses[[0, 1, 3, 4]] == pytest.approx(np.array(wanted)[[0, 1, 3, 4]], rel=1e-5)


def test_flat_weights_go_there_and_back() -> None:
    module = WithEverything()
    layout = Layout(module)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = layout.read()
    layout.write(Model(model.parameters + 1, model.buffers + 1))
    assert int(module.norm.num_batches_tracked) == 1 and float(module.frozen.sum()) == 3
    flat = layout.bind()
    flat.copy_(model.parameters)
    layout.write(model)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert layout.size == sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_too_little_memory_makes_smaller_chunks_and_at_last_one_line(monkeypatch) -> None:
    task = image_task("mlp")
    fleet = SimulatedFleet([task], seed=0, engine=engine_of("stacked"))
    model, inner, most = task.layout.read(), Stacked._train, 2

    def train(self: Stacked, model: Model, clients: np.ndarray, *rest: Any) -> torch.Tensor:
        if self.room > most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return inner(self, model, clients, *rest)

    monkeypatch.setattr(Stacked, "_train", train)
    for update, client in zip(trained(fleet, model, everybody(0, 1, 3, 4), 0), (0, 1, 3, 4)):
        assert distance(update, reference_update(task, 0, 0, model, client, 0)[0]) < 1e-3
    most = 0
    with refused('task "test"', ("GPU", "too little free memory", "client")):
        trained(fleet, model, everybody(0, 1), 0)


class FromTheHost(nn.Module):
    """Fetches a number from the host's memory, which no CUDA graph can do."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x) * torch.tensor([2.0], device=x.device)


@pytest.mark.cuda
def test_a_task_that_cannot_be_captured_leaves_the_others_their_graphs() -> None:
    torch.manual_seed(0)
    tasks = [image_task("mlp"), make_task(FromTheHost(), torch.randn(sum(SIZES), 6), 4)]
    references = copy.deepcopy(tasks)
    fleet = SimulatedFleet(tasks, seed=4, engine=engine_of("cuda"))
    models = [task.layout.read() for task in fleet.tasks]
    for task, clients in ((0, (3,)), (1, (3, 4)), (0, (0, 3, 4)), (1, (0,))):
        (chunk, *more) = fleet.train(models, everybody(*clients, task=task), 0)
        found = torch.cat([one.parameters.cpu() for one in (chunk, *more)])
        order = np.concatenate([one.rows for one in (chunk, *more)])
        for client, update in zip(np.array(clients)[order], found):
            start = references[task].layout.read()
            wanted, _ = reference_update(references[task], task, 4, start, int(client), 0)
            assert distance(update, wanted) < 1e-3
    assert [trainer.captures for trainer in fleet.trainers] == [True, False]
    assert {key[0] for key in fleet.graphs} == {0}
    assert (
        [note for note in fleet.journal.notices if "cannot be captured" in note]
        == fleet.journal.notices
        != []
    )


def test_what_fails_in_a_stack_is_told_in_one_line(monkeypatch) -> None:
    fleet = SimulatedFleet([image_task("mlp")], seed=0, engine=engine_of("stacked"))
    monkeypatch.setattr(fleet.trainers[0], "gradients", lambda *given: 1 / 0)
    with refused(('task "test"', "clients [4, 3]"), "ZeroDivisionError"):
        trained(fleet, fleet.tasks[0].layout.read(), everybody(3, 4), 0)
