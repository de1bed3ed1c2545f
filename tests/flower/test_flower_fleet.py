"""How the fleet treats what comes: a grid in this process, so that every odd answer can be given.

Real processes and real messages are in test_federation.py and in tests/deploy.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

import fedmux
from conftest import table
from fedmux.aggregation import Updates
from fedmux.allocation import Assignment, RoundState, Signals
from fedmux.allocation.plan import Budget
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.flower.fleet import FlowerFleet
from fedmux.flower.journal import FlowerJournal
from fedmux.flower.operator import Operator
from fedmux.flower.post import Post
from fedmux.flower.roster import Roster
from fedmux.flower.server import Terms, _gather
from fedmux.flower.tasks import FlowerTask, How
from fedmux.flower.wire import Hello, put_failure
from fedmux.methods import find
from fedmux.model import Model
from fedmux.population import Population
from fedmux.tasks.task import LocalSgd


@pytest.fixture(autouse=True)
def inside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages can only be made there."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


POINTS = torch.randn(6, 4), torch.zeros(6, dtype=torch.int64)
Answer = Callable[[int, str, RecordDict], Any]  # node, kind, content -> content, an error, or None


class Grid:
    """Answers at the first look."""

    def __init__(self, nodes: int, answer: Answer) -> None:
        self.nodes, self.answer = list(range(10, 10 + nodes)), answer
        self.replies: dict[str, Any] = {}
        self.asked: list[tuple[int, str]] = []

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            self.asked.append((node, kind))
            key = f"{node} {kind} {len(self.asked)}"
            self.replies[key] = self.answer(node, kind, message.content)
        return list(self.replies)[-len(messages) :]

    def pull_messages(self, identifiers: list[str]) -> list[Any]:
        ready = [key for key in identifiers if self.replies.get(key) is not None]
        return [self._reply(key, self.replies.pop(key)) for key in ready]

    def _reply(self, key: str, content: Any) -> Any:
        sound = isinstance(content, RecordDict)
        return SimpleNamespace(
            metadata=SimpleNamespace(reply_to_message_id=key),
            has_content=lambda: sound,
            content=content,
            error=None if sound else SimpleNamespace(code=content[0], reason=content[1]),
        )


def well(node: int, kind: str, content: RecordDict) -> RecordDict:
    """What a client says that has nothing to hide."""
    if kind == "query.hello":
        reply = RecordDict()
        Hello(str(node - 10), 1, {"a": 6}).put(reply)
        return reply
    if kind == "query.signals":
        return RecordDict({"signal.a": MetricRecord({"loss": 1.0, "norm": 2.0, "beta": 1.0})})
    zeros = ArrayRecord(array_dict={"update": Array(np.zeros(10, np.float32)), "buffers": Array(np.zeros(0))})
    return RecordDict({"update.a": zeros})


def fleet(answer: Answer, clients: int = 3, deadline: float = 0.5) -> tuple[FlowerFleet, Grid, list[Model]]:
    described = FlowerTask(lambda: nn.Linear(4, 2), lambda config: POINTS, lambda: (POINTS, POINTS))
    task = described.server_task("a", How(LocalSgd(2, 1), lambda round: 0.1, None))
    grid = Grid(clients, answer)
    journal = FlowerJournal(clients, 1)
    post = Post(grid, deadline)  # type: ignore[arg-type]
    made = FlowerFleet(post, [task], 0, Roster(["a"], clients, journal), journal)
    made.meet()
    return made, grid, [task.layout.read()]


def everyone(clients: int = 3) -> Assignment:
    ones = np.ones(clients)
    return Assignment(np.arange(clients), np.zeros(clients, np.int64), ones.astype(np.int64), ones, ones)


def test_every_job_ends_as_an_update_or_as_a_failure_also_when_answers_come_together() -> None:
    made, _, models = fleet(well)
    back = made.send(models, everyone(), 0, None, enough=1)
    assert made.journal.releases[:, 0].tolist() == [1, 1, 1]
    assert back.sum() == 1 and [failure.kind for failure in made.journal.failures] == ["slow", "slow"]
    assert made.meet().available.all()  # they have answered: nobody is busy


def test_a_straggler_is_busy_until_it_answers() -> None:
    slow = {12}
    made, grid, models = fleet(lambda n, k, c: None if n in slow and k == "train.multi" else well(n, k, c))
    made.send(models, everyone(), 0, None, enough=2)
    assert made.meet().available[:, 0].tolist() == [True, True, False]
    (key,) = [key for key, reply in grid.replies.items() if reply is None]
    grid.replies[key] = well(12, "train.multi", RecordDict())
    assert made.meet().available.all()


BAD_ARRAYS = {
    "junk": Array(dtype="float32", shape=(10,), stype="numpy.ndarray", data=b"\x93NUMPYjunk"),
    "pickle": Array(dtype="float32", shape=(10,), stype="numpy.ndarray", data=b"\x80\x04."),
    "stype": Array(dtype="float32", shape=(10,), stype="other", data=b""),
    "text": Array(np.array(["x"] * 10)),
    "big-endian": Array(np.zeros(10, ">f4")),
    "wide": Array(np.zeros(10, np.longdouble)),
    "long": Array(np.zeros(11, np.float32)),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_arrays_that_are_none_are_refused(name: str) -> None:
    def answer(node: int, kind: str, content: RecordDict) -> RecordDict:
        if kind == "train.multi" and node == 10:
            given = {"update": BAD_ARRAYS[name], "buffers": Array(np.zeros(0))}
            return RecordDict({"update.a": ArrayRecord(array_dict=given)})
        return well(node, kind, content)

    made, _, models = fleet(answer)
    assert made.send(models, everyone(), 0, None, None).tolist() == [False, True, True]
    assert [(failure.client, failure.kind) for failure in made.journal.failures] == [("0", "shape")]


@pytest.mark.parametrize("reason", ["", " \n ", None, "x" * 10_000])
def test_an_error_has_a_reason_of_one_short_line(reason: str | None) -> None:
    made, _, models = fleet(lambda n, k, c: (2, reason) if n == 11 and k == "train.multi" else well(n, k, c))
    assert made.send(models, everyone(), 0, None, None).tolist() == [True, False, True]
    (failure,) = made.journal.failures
    assert failure.kind == "raised" and "\n" not in failure.reason and 8 < len(failure.reason) < 400


def test_a_task_that_failed_at_its_client_is_recorded_with_the_clients_reason() -> None:
    def answer(node: int, kind: str, content: RecordDict) -> RecordDict:
        reply = RecordDict()
        if kind == "query.hello" or node != 10:
            return well(node, kind, content)
        put_failure(reply, "a", "label 12, but the module has 10 outputs\nand more")
        return reply

    made, _, models = fleet(answer)
    signals = made.signals(models, ("loss",), 0, np.ones((3, 1), bool), lambda s, c: torch.zeros(1, 10))
    assert signals.silent[:, 0].tolist() == [True, False, False]
    assert made.send(models, everyone(), 0, None, None).tolist() == [False, True, True]
    told = [(failure.client, failure.task, failure.kind, failure.reason) for failure in made.journal.failures]
    assert told == [("0", "a", "raised", "label 12, but the module has 10 outputs")] * 2
    assert [failure.phase for failure in made.journal.failures] == ["query.signals", "train.multi"]


def test_metrics_say_how_many_clients_are_connected_before_the_first_round(tmp_path: Path) -> None:
    made, grid, _ = fleet(well, clients=3)
    operator = Operator(tmp_path / "log.jsonl")
    counted = list[float | None]()
    for nodes in ([10, 11, 12], [11]):
        grid.nodes = nodes
        _gather(made, Terms(), operator, lambda line: None)
        counted.append(operator.metrics.get_sample_value("fedmux_clients"))
    assert counted == [3, 1]


@pytest.mark.parametrize(
    "report",
    [{"loss": float("nan")}, {"loss": 1e300}, {"norm": 1.0}, {"loss": [1.0]}, {"loss": 1.0, "norm": 1e300}],
)
def test_reports_beyond_reason_are_silence(report: dict[str, Any]) -> None:
    def answer(node: int, kind: str, content: RecordDict) -> RecordDict:
        if kind == "query.signals" and node == 10:
            return RecordDict({"signal.a": MetricRecord(report)})
        return well(node, kind, content)

    made, _, models = fleet(answer)
    needs = ("loss", "norm")
    signals = made.signals(models, needs, 0, np.ones((3, 1), bool), lambda s, clients: torch.zeros(1, 10))
    assert signals.silent[:, 0].tolist() == [True, False, False]
    assert np.isfinite(signals.losses[1:]).all() and len(made.journal.failures) == 1


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("<class 'ZeroDivisionError'>:<'division by zero'>", "error 2: ZeroDivisionError: division by zero"),
        ("<class 'fedmux.errors.FedmuxError'>:<'task \"a\": no'>", 'error 2: task "a": no'),
        ("<class 'a.B'>:<'two\nlines'>", "error 2: B: two"),
        ("An exception", "error 2: An exception"),
    ],
)
def test_what_an_app_raised_is_told_in_plain_words(reason: str, told: str) -> None:
    made, _, models = fleet(lambda n, k, c: (2, reason) if n == 11 and k == "train.multi" else well(n, k, c))
    made.send(models, everyone(), 0, None, None)
    assert [failure.reason for failure in made.journal.failures] == [told]


def test_a_node_that_does_not_say_who_it_is_sits_out_longer_and_longer() -> None:
    made, grid, models = fleet(lambda n, k, c: (2, "no id") if n == 12 else well(n, k, c))
    for round in range(20):
        made.meet()
        made.send(models, everyone(2), round, None, None)
    asked = sum(1 for node, kind in grid.asked if node == 12)
    assert 3 <= asked <= 7


def test_a_client_that_comes_as_another_node_is_told() -> None:
    same = {10: "x", 11: "x", 12: "y"}

    def answer(node: int, kind: str, content: RecordDict) -> RecordDict:
        reply = RecordDict()
        Hello(same[node], 1, {"a": 6}).put(reply)
        return reply

    made, _, _ = fleet(answer)
    assert sorted(made.roster.nodes.values()) == [0, 1]
    assert ["has joined as another node" in line for line in made.journal.notices] == [True]


@pytest.mark.parametrize("method", ["mmfl-stale", "mmfl-gvr*", "mmfl-lvr*", "mmfl-optimal-stale", "fedvarp"])
def test_stale_updates_of_a_client_that_falls_silent_leave_the_sum(method: str) -> None:
    """Two clients sent 0 and 4; the second is silent now, the first sends 1: the step is 1, whatever was."""
    aggregator, pair = (
        find(method)().aggregator(),
        Population(np.ones(2, int), np.full((2, 1), 10), np.ones((2, 1), bool)),
    )
    model = Model(torch.zeros(1), torch.zeros(0, dtype=torch.float64))
    ones = np.ones((2, 1))
    state = RoundState(0, 9, 0, pair, Budget(rate=1.0), np.ones(1), np.ones(1), Signals(ones, ones, ones))
    state = replace(state, betas=ones)

    def step(state: RoundState, given: list[float]) -> float:
        nonlocal model
        jobs = everyone(len(given))
        aggregator.begin(state, jobs, [model])
        sent, none = torch.tensor(given)[:, None], torch.zeros(len(given), 0, dtype=torch.float64)
        aggregator.add(Updates(0, np.arange(len(given)), sent, none, jobs.count))
        before, (model,) = model, aggregator.finish([model])
        return float(before.parameters - model.parameters)

    aggregator.prepare(state, [model])
    step(state, [0.0, 4.0])
    aggregator.prepare(replace(state, round=1), [model])
    alone = replace(state, round=1, population=replace(pair, eligible=np.array([[True], [False]])))
    aggregator.prepare(alone, [model])  # as the round does once it knows who is silent
    assert step(alone, [1.0]) == pytest.approx(1.0)


def test_a_round_tells_its_aggregator_who_fell_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The population that weights are made for is the one that the stale sums were made for."""
    kind = type(find("mmfl-gvr*")().aggregator())
    prepared, begun = list[Population](), list[bool]()
    own_prepare, own_begin, own_signals = kind.prepare, kind.begin, SimulatedFleet.signals

    def prepare(self: Any, state: RoundState, models: list[Model]) -> None:
        prepared.append(state.population)
        own_prepare(self, state, models)

    def begin(self: Any, state: RoundState, assignment: Assignment, models: list[Model]) -> None:
        begun.append(state.population is prepared[-1])
        own_begin(self, state, assignment, models)

    def signals(self: Any, models: Any, needs: Any, round: int, asked: Any, stale: Any) -> Signals:
        silent = np.zeros_like(asked)
        silent[3] = asked[3]
        return replace(own_signals(self, models, needs, round, asked, stale), silent=silent)

    monkeypatch.setattr(kind, "prepare", prepare)
    monkeypatch.setattr(kind, "begin", begin)
    monkeypatch.setattr(SimulatedFleet, "signals", signals)
    run = fedmux.run(fedmux.Experiment(**table(method="mmfl-gvr*")), tmp_path / "run")
    assert len(begun) == 4 and all(begun)
    assert 3 not in run.allocation["client"]


def told(loss: float | None) -> Answer:
    """A client that sends this loss with its update, or none."""

    def answer(node: int, kind: str, content: RecordDict) -> RecordDict:
        reply = well(node, kind, content)
        if kind == "train.multi" and loss is not None:
            assert content.config_records["job.a"]["wants"] == ["loss"]
            reply["signal.a"] = MetricRecord({"loss": loss})
        return reply

    return answer


def test_losses_come_with_the_updates_of_those_who_are_to_tell_them() -> None:
    made, grid, models = fleet(told(0.75))
    telling = np.ones((3, 1), bool)
    assert made.send(models, everyone(), 0, None, None, telling).all()
    (updates,) = made.train(models, everyone(), 0, None, telling)
    assert updates.losses is not None and updates.losses.tolist() == [0.75] * 3
    assert [kind for _, kind in grid.asked].count("train.multi") == len(grid.asked) - 3  # and three hellos


@pytest.mark.parametrize("loss", [None, float("nan"), 1e30])
def test_an_update_without_a_sound_loss_is_refused_where_the_loss_is_wanted(loss: float | None) -> None:
    made, _, models = fleet(told(loss))
    assert not made.send(models, everyone(), 0, None, None, np.ones((3, 1), bool)).any()
    failures = made.journal.take_failures()
    assert [failure.phase for failure in failures] == ["train.multi"] * 3
    assert {failure.kind for failure in failures} == {"missing" if loss is None else "not-finite"}
    assert not list(made.train(models, everyone(0), 0, None, np.ones((3, 1), bool)))


def test_nobody_tells_a_loss_that_is_not_wanted() -> None:
    made, _, models = fleet(well)
    assert made.send(models, everyone(), 0, None, None, np.zeros((3, 1), bool)).all()
    (updates,) = made.train(models, everyone(), 0, None)
    assert updates.losses is None
