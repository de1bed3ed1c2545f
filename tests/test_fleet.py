"""Every way to train a client gives the update of the plain loop; signals and scores mean what they say."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedmux.allocation import Assignment
from fedmux.errors import FedmuxError
from fedmux.flat import Layout, Model
from fedmux.fleet.local import TightLoop, client_means, reference_update
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.tasks import build, build_loss, build_metric
from fedmux.tasks.task import LocalSgd, Task

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
    held_out = (x[:5], y[:5])
    return Task(
        name="test",
        module=module,
        layout=Layout(module),
        loss=build_loss("cross-entropy", {}),
        metric=build_metric("accuracy"),
        x=x,
        y=y,
        offsets=np.concatenate([[0], np.cumsum(SIZES)]),
        validation=held_out,
        test=held_out,
        local=LocalSgd(**{"batch_size": 8, "epochs": 2, **local}),
        learning_rate=lambda round: 0.01 / (1 + round),
    )


def image_task(name: str, **local: Any) -> Task:
    torch.manual_seed(0)
    shape = (80,) if name == "char-lstm" else (1, 8, 8)
    options = (
        {"hidden": 6, "layers": 2} if name == "char-lstm" else {"width": 8} if name == "resnet18" else {}
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


@pytest.mark.parametrize("local", LOCAL, ids=["plain", "momentum", "everything", "one-batch"])
@pytest.mark.parametrize("name", ["cnn-small", "mlp", "resnet18", "char-lstm"])
def test_the_tight_loop_equals_the_reference_loop(name: str, local: dict[str, Any]) -> None:
    task = image_task(name, **local)
    model = task.layout.read()
    loop = TightLoop(task, 1, seed=4)
    for client in (0, 1, 3, 4):
        update, buffers = loop.update(model, client, round=2)
        wanted, wanted_buffers = reference_update(task, 1, 4, model, client, 2)
        torch.testing.assert_close(update, wanted, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(buffers, wanted_buffers)
        assert update.norm() > 0


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
    monkeypatch.setattr("fedmux.fleet.simulated.CHUNK_BYTES", 2 * 4 * task.layout.size)
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
    clients = fleet.client_accuracies([model], np.array([[True]] * 5))
    assert clients[0, 0] == pytest.approx(float(right[:7].mean()))
    assert np.isnan(clients[2, 0])
    assert fleet.evaluate([model], "test").accuracy[0] == pytest.approx(float(right[:5].mean()))


def test_a_diverging_client_is_named() -> None:
    task = image_task("mlp")
    fleet = SimulatedFleet([task], seed=0)
    model = task.layout.read()
    broken = Model(torch.full_like(model.parameters, float("inf")), model.buffers)
    one = np.ones(1)
    job = Assignment(np.array([3]), np.array([0]), one.astype(int), one, one)
    with pytest.raises(FedmuxError, match=r'task "test": the update of client 3 in round 1 is not finite'):
        list(fleet.train([broken], job, 0))


def test_a_module_that_fails_on_a_client_is_named() -> None:
    fleet = SimulatedFleet([own_task()], seed=0)  # batch statistics of a single point do not exist
    one = np.ones(1)
    job = Assignment(np.array([1]), np.array([0]), one.astype(int), one, one)
    with pytest.raises(FedmuxError, match=r'task "test": local training of client 1 failed: ValueError: Exp'):
        list(fleet.train([fleet.tasks[0].layout.read()], job, 0))


def test_client_means_have_no_value_for_a_client_without_points() -> None:
    means = client_means(torch.tensor([1.0, 3.0, 5.0]), np.array([0, 2, 2, 3]))
    assert means[0] == 2 and np.isnan(means[1]) and means[2] == 5


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
