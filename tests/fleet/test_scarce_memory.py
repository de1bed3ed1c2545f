"""A GPU without memory left: less at a time, what can be had again is given back, others are waited for."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from test_fleet import image_task

import fedmux
from conftest import population, round_state, table
from fedmux.aggregation.aggregator import Aggregator, Updates, Workspace
from fedmux.aggregation.low_rank import LowRankStore
from fedmux.aggregation.store import ClientStore
from fedmux.distributed import memory
from fedmux.distributed.memory import in_parts, patiently
from fedmux.fleet import scoring, simulated
from fedmux.fleet.scoring import forward
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.methods import find
from refusals import refused
from stepping import zero_models


class Scarce:
    """Memory for so many rows at a time; all the more once something was given back."""

    def __init__(self, room: int, more: int = 0) -> None:
        self.room, self.more, self.released = room, more, 0

    def ask(self, rows: int) -> None:
        if rows > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    def release(self) -> None:
        self.released += 1
        self.room += self.more


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr("fedmux.distributed.memory.time.sleep", waited.append)
    return waited


@pytest.mark.parametrize("room", [1, 2, 3, 7, 10, 11])
def test_every_row_is_done_once_and_in_order_however_little_room_there_is(room):
    scarce, done = Scarce(room), []

    def work(rows: slice) -> None:
        scarce.ask(rows.stop - rows.start)
        done.extend(range(10)[rows])

    in_parts(10, work, scarce.release)
    assert done == list(range(10))


def test_what_can_be_had_again_is_given_back_before_less_is_done_at_a_time(waits):
    scarce, parts = Scarce(4, more=6), []
    in_parts(10, lambda rows: (scarce.ask(rows.stop - rows.start), parts.append(rows)), scarce.release)
    assert parts == [slice(0, 10)] and scarce.released == 1 and waits == []


def test_a_single_row_waits_for_others_and_then_tells_in_one_line(waits):
    with refused(("GPU", "memory", "2 GiB"), "fedmux resume"):
        in_parts(2, lambda rows: Scarce(0).ask(1))
    assert waits == list(memory.WAITS)
    waits.clear()
    scarce = Scarce(0)
    with refused(("GPU", "memory"), "fedmux resume"):
        patiently(lambda: scarce.ask(1), scarce.release)
    assert waits == [0.0, *memory.WAITS] and scarce.released == 5
    assert patiently(lambda: 7) == 7


def test_other_errors_are_not_taken_for_a_lack_of_memory(waits):
    def fails(error: Exception) -> None:
        raise error

    with pytest.raises(RuntimeError, match="shapes do not match"):
        patiently(lambda: fails(RuntimeError("shapes do not match")))
    assert waits == []
    for text in (
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
    ):
        with refused(("GPU", "memory"), "fedmux resume"):
            patiently(lambda text=text: fails(RuntimeError(text)))


STORED = ["mmfl-gvr*", "mmfl-optimal-stale", "fedstale", "mifa", "scaffold", "random", "fedfairmmfl", "q-ffl"]
CASES = [*((name, {}) for name in STORED), ("fedstale", {"rank": 2}), ("scaffold", {"rank": 2})]


@pytest.mark.parametrize(("method", "options"), CASES)
@pytest.mark.parametrize("where", ["weighed", "get", "put"])
def test_aggregation_in_parts_comes_to_the_same(method, options, where, monkeypatch):
    """Rounds in which sums, or the store, only have room for two rows at a time, and fail now and then."""
    people = population(9, 2)
    rng = np.random.default_rng(1)
    sent = [rng.normal(0, 1, (9, 2, 5)).astype(np.float32) for _ in range(3)]
    allocator = find("random")().allocator()

    def rounds() -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        aggregator, models = find(method)(**options).aggregator(), zero_models(2, 5)
        aggregator.workspace = Workspace()
        for number, updates in enumerate(sent):
            state = round_state(people, round=number, jobs=9)
            assignment = allocator.plan(state).draw(state.rng())
            aggregator.prepare(state, models)
            aggregator.begin(state, assignment, models)
            for task in range(2):
                rows = np.flatnonzero(assignment.task == task)
                none = torch.zeros(len(rows), 0, dtype=torch.float64)
                given = torch.from_numpy(updates[assignment.client[rows], task])
                losses = state.signals.losses[assignment.client[rows], task]
                aggregator.add(Updates(task, rows, given, none, np.full(len(rows), 3), losses))
            models = aggregator.finish(models)
        return [model.parameters for model in models], aggregator.state()

    wanted = rounds()
    store = LowRankStore if options else ClientStore
    cls, rows_of = {
        "weighed": (Aggregator, lambda updates: len(updates.rows)),
        "get": (store, lambda task, clients: len(clients)),
        "put": (store, lambda task, clients, *rest: len(clients)),
    }[where]
    original = getattr(cls, where)

    def scarce(self, *arguments):
        Scarce(2).ask(rows_of(*arguments))
        return original(self, *arguments)

    monkeypatch.setattr(cls, where, scarce)
    found = rounds()
    for parameters, others in zip(found[0], wanted[0]):
        torch.testing.assert_close(parameters, others, rtol=1e-5, atol=1e-6)
    assert found[1].keys() == wanted[1].keys()
    for name, value in found[1].items():
        torch.testing.assert_close(value.double(), wanted[1][name].double(), rtol=1e-5, atol=1e-6)


def test_signals_and_scores_in_parts_come_to_the_same(monkeypatch):
    asked = np.array([[True], [True], [False], [True], [True]])

    def told() -> list[np.ndarray]:
        fleet = SimulatedFleet([image_task("mlp")], seed=0)
        model = fleet.tasks[0].layout.read()
        stale = lambda task, clients: torch.ones(len(clients), len(model.parameters))  # noqa: E731
        signals = fleet.signals([model], {"loss", "projection"}, 0, asked, stale)
        clients = fleet.client_scores([model], asked)
        return [
            signals.losses,
            signals.norms,
            signals.betas,
            clients.score,
            fleet.evaluate([model], "test").loss,
        ]

    wanted = told()
    compared, layout = simulated.compared, scoring.client_means
    monkeypatch.setattr(
        simulated, "compared", lambda u, *rest: (Scarce(1).ask(len(u)), compared(u, *rest))[1]
    )
    monkeypatch.setattr(scoring, "client_means", lambda v, o: (Scarce(2).ask(len(o) - 1), layout(v, o))[1])
    for found, other in zip(told(), wanted):
        assert found == pytest.approx(other, rel=1e-6, nan_ok=True)


def test_an_evaluation_that_does_not_fit_goes_through_in_smaller_batches(monkeypatch):
    task = image_task("mlp")
    wanted = forward(task, task.layout.read(), task.x, task.y)
    loss = task.loss

    def scarce(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        Scarce(5).ask(len(outputs))
        return loss(outputs, targets)

    object.__setattr__(task, "loss", scarce)
    torch.testing.assert_close(forward(task, task.layout.read(), task.x, task.y), wanted)


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["mmfl-optimal-stale", "mmfl-gvr*", "scaffold", "mmfl-lvr", "mifa"])
def test_a_run_goes_through_on_a_gpu_with_hardly_any_memory(method, tmp_path):
    """As where others have taken what seemed to be free: 700 MiB for stacks of models of 6.5 MB each."""
    small = table(method=method, rounds=4, execution={"device": "cuda", "precision": "fp32"})
    small["population"] = {"clients": 40, "jobs": 12, "processors": 1}
    for task in small["task"]:
        task |= {"data": "fashion-mnist-sample", "model": "cnn", "model_options": {}, "learning_rate": 0.05}
    losses = []
    for name, limit in (("plenty", None), ("little", 700 * 2**20)):
        told = json.dumps([small, str(tmp_path / name), limit])
        ended = subprocess.run([sys.executable, "-c", LIMITED, told], capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        run = fedmux.Run(tmp_path / name)
        losses.append([entry["tasks"]["a"]["loss"] for entry in run.metrics])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


LIMITED = """
import json, sys, torch, fedmux
table, folder, limit = json.loads(sys.argv[1])
if limit:
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
fedmux.run(fedmux.Experiment(**table), folder)
"""
