"""The record of a round: written and read again it is the same, and only finite numbers pass as figures."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmux.runs.rounds import ROUND_FIGURES, TASK_FIGURES, Divergence, Failure, OverTasks, Round, TaskRound
from fedmux.runs.scale import ACCURACY, PROGRESS

names = st.text(max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**80)  # JSON writes them whole, beyond what a float holds
spreads = st.dictionaries(names, numbers, max_size=4)
MEASURED = ("loss", "step_size", "learning_rate")
scored = (  # score, progress, metric, plain
    st.tuples(st.none(), st.none(), st.just(ACCURACY), st.just(True))
    | numbers.map(lambda score: (score, score, ACCURACY, True))
    | st.tuples(numbers, st.none() | numbers, names, st.just(False))
)
tasks = st.builds(
    lambda scored, **others: TaskRound(*scored, **others),
    scored,
    **{
        name: st.none() | (numbers if name in MEASURED else counts)
        for name in TASK_FIGURES
        if name != "clients"
    },
    clients=st.none() | spreads,
)
SCORED = ("accuracy", "score", "progress", "metric")
failures = st.builds(Failure, client=names, task=names, phase=names, kind=names, reason=names)
divergences = st.builds(
    Divergence,
    task=names,
    round=counts,
    reason=names,
    model=counts,
    learning_rate=numbers,
    retries=counts,
    paused=st.booleans(),
)
rounds = st.builds(
    Round,
    round=counts,
    tasks=st.dictionaries(names, tasks, max_size=3),
    allocation=st.dictionaries(names, numbers | st.lists(counts, max_size=3), max_size=3),
    clients=st.none() | counts,
    events=st.dictionaries(names, st.lists(counts | names, max_size=3), max_size=3),
    dropped=st.none() | counts,
    progress=st.none() | st.builds(OverTasks, numbers, numbers, numbers, st.none() | numbers),
    measure=st.sampled_from((ACCURACY, PROGRESS)),
    probability=st.dictionaries(names, spreads, max_size=2),
    saturated=st.none() | counts,
    diverged=st.lists(divergences, max_size=2),
    phases=st.dictionaries(names, numbers, max_size=3),
    failures=st.lists(failures, max_size=2),
    seconds=numbers,
)
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | names,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(names, inside, max_size=3),
    max_leaves=8,
)


@given(rounds)
@settings(max_examples=100, deadline=None)
def test_a_round_is_the_same_once_it_is_written_and_read(entry: Round) -> None:
    line = json.dumps(entry.line(), allow_nan=False).encode()
    assert Round.parse(line) == entry
    assert dict(entry) == entry.line()
    assert len(entry) == len(entry.line())


def is_finite(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value))


@given(st.fixed_dictionaries({}, optional=dict.fromkeys((*SCORED, *TASK_FIGURES), anything)))
@settings(max_examples=200, deadline=None)
def test_what_is_no_finite_number_is_no_figure_of_a_task(table: dict[str, Any]) -> None:
    found = TaskRound.read(table)
    figures = ("score", "progress", *TASK_FIGURES)
    assert all(is_finite(getattr(found, name)) for name in figures if name != "clients")
    assert all(is_finite(value) for value in (found.clients or {}).values())


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(set(ROUND_FIGURES) - {"round", "tasks"}, anything)))
@settings(max_examples=200, deadline=None)
def test_whatever_a_line_has_is_read_or_left_out(table: dict[str, Any]) -> None:
    found = Round.read({**table, "round": 3, "tasks": {"a": {}}})
    assert found is not None
    assert all(is_finite(value) for value in (found.clients, found.dropped, found.saturated, found.seconds))
    assert all(is_finite(value) for value in found.phases.values())
    assert found.progress is None or all(map(is_finite, vars_of(found.progress)))
    assert all(isinstance(value, list) for value in found.events.values())
    found.line()


def vars_of(overall: OverTasks) -> list[float | None]:
    return [overall.mean, overall.minimum, overall.variance, overall.cosine]


@pytest.mark.parametrize(
    "figure", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"true", b'"0.5"', b"null", b"[]"]
)
def test_nothing_but_a_finite_number_is_an_accuracy(figure: bytes) -> None:
    line = b'{"round": 1, "tasks": {"a": {"accuracy": %b, "jobs": 2}}, "accuracy": {"mean": %b}}'
    found = Round.parse(line % (figure, figure))
    assert found is not None
    assert (found.of("a").accuracy, found.of("a").jobs, found.accuracy) == (None, 2, None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b"[" * 100_000,
        b"7",
        b"[]",
        b"{}",
        b'{"round": 1}',
        b'{"round": "1", "tasks": {}}',
        b'{"round": true, "tasks": {}}',
        b'{"round": -1, "tasks": {}}',
        b'{"round": 1.0, "tasks": {}}',
        b'{"round": 1, "tasks": []}',
        b'{"round": 1, "tasks": {"a": 3}}',
    ],
)
def test_what_is_no_round_is_none(line: bytes) -> None:
    assert Round.parse(line) is None


@pytest.mark.parametrize(
    ("written", "read"), [("3", 3), ("3.0", 3), (str(2**53 + 1), 2**53 + 1), ("1.5", None)]
)
def test_a_count_is_a_whole_number(written: str, read: int | None) -> None:
    line = (
        '{"round": 1, "tasks": {"a": {"jobs": N, "loss": 1.5}}, "clients": N, "dropped": N, "saturated": N}'
    )
    found = Round.parse(line.replace("N", written).encode())
    assert found is not None
    assert [found.of("a").jobs, found.clients, found.dropped, found.saturated] == [read] * 4
    assert found.of("a").loss == 1.5


def test_a_line_of_an_older_version_reads() -> None:
    """Without what was recorded only later: the cosine, retries of a task that diverged, seconds."""
    told = {"task": "a", "round": 2, "reason": "its loss is not finite", "model": 0, "learning_rate": 1}
    line = {
        "round": 2,
        "tasks": {"a": {"accuracy": 1, "jobs": 3, "unknown": 4}},
        "accuracy": {"mean": 1, "minimum": 1, "variance": 0},
        "diverged": [told],
        "unknown": {"a": 1},
    }
    found = Round.read(line)
    assert found == Round(
        2,
        {"a": TaskRound(1, 1, jobs=3)},
        progress=OverTasks(1, 1, 0),
        diverged=[Divergence("a", 2, "its loss is not finite", 0, 1.0, 0, False)],
    )


def test_a_round_reads_as_its_line() -> None:
    entry = Round(4, {"a": TaskRound(0.5, 0.5)}, progress=OverTasks(0.5, 0.5, 0.0), dropped=0)
    assert "accuracy" in entry
    assert "phases" not in entry
    assert entry["tasks"]["a"]["accuracy"] == entry["accuracy"]["minimum"] == 0.5
    assert entry.get("failures", []) == []
    assert list(entry) == ["round", "tasks", "dropped", "accuracy", "seconds"]
    with pytest.raises(KeyError):
        entry["nonsense"]
    assert entry.of("b") == TaskRound()


@given(rounds)
def test_a_round_equals_its_line(entry: Round) -> None:
    assert entry == entry.line() == dict(entry) and entry.line() == entry
    assert entry != {**entry.line(), "round": -1}
    assert json.dumps(entry.line())
