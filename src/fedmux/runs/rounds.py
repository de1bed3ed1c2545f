"""The record of a round: one line of `metrics.jsonl`, and what observers of a run receive.

Figures have names and types. Anything but a finite number in a damaged or foreign line reads as missing.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from fedmux.population import Floats
from fedmux.runs.scale import ACCURACY, PROGRESS


@dataclass(frozen=True)
class Failure:
    """Something that was asked of a client and did not come."""

    client: str  # its own id
    task: str
    phase: str
    kind: str  # unreachable, raised, lost, late, slow, missing, shape, not-finite, norm
    reason: str

    def __str__(self) -> str:
        return f'client {self.client}, task "{self.task}": {self.phase}: {self.reason}'


@dataclass(frozen=True)
class Divergence:
    """That a task was set back, and what became of it."""

    task: str
    round: int  # after or in which it was seen
    reason: str
    model: int  # the round after which the model was sound
    learning_rate: float  # of that round
    retries: int  # how often its learning rate has been halved since the start; with `paused` false, just now
    paused: bool

    def __str__(self) -> str:
        remedy = f"lower learning_rate (it was {self.learning_rate:g}) or set clip"
        done = (
            f"it is paused with its model of round {self.model}; {remedy}"
            if self.paused
            else f"it continues from its model of round {self.model} at half the learning rate"
        )
        return f'round {self.round}: task "{self.task}" has diverged: {self.reason}; {done}'


@dataclass(slots=True)
class OverTasks:
    """Progress over the tasks: their accuracies, where all are scored by accuracy."""

    mean: float
    minimum: float
    variance: float
    cosine: float | None = None  # similarity to equal progress, [P2] Lemma 2: sum f / (sqrt(S) ||f||)

    @classmethod
    def of(cls, progress: Floats) -> "OverTasks":
        """Of S tasks."""
        norm = float(np.sqrt(len(progress)) * np.linalg.norm(progress))
        cosine = float(progress.sum()) / norm if norm > 0 else 1.0
        return cls(float(progress.mean()), float(progress.min()), float(progress.var()), cosine)


@dataclass(slots=True)
class TaskRound:
    """One task's figures in a round; None: not measured."""

    score: float | None = None  # by the task's metric, in its own unit
    progress: float | None = None  # from the task's start (0) to its target (1); of accuracies the score
    metric: str = ACCURACY
    plain: bool = True  # its progress is its accuracy, and goes without saying
    loss: float | None = None
    clients: dict[str, float] | None = None  # how the score is spread over the clients' own points
    jobs: int | None = None
    uploads: int | None = None
    reports: int | None = None
    upload_bytes: int | None = None
    gradient_steps: int | None = None
    wasted_steps: int | None = None
    forward_passes: int | None = None
    server_bytes: int | None = None
    step_size: float | None = None
    learning_rate: float | None = None
    diverged: int | None = None  # the round in which it was paused

    @property
    def accuracy(self) -> float | None:
        """The score, if it is an accuracy."""
        return self.score if self.metric == ACCURACY else None

    def line(self) -> dict[str, Any]:
        if self.plain or self.score is None:
            scored: dict[str, Any] = {"accuracy": self.score}
        else:
            scored = {"metric": self.metric, "score": self.score, "progress": self.progress}
        others = ((name, getattr(self, name)) for name in TASK_FIGURES)
        return {name: value for name, value in (*scored.items(), *others) if value not in NOTHING}

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "TaskRound":
        others = [read(table.get(name)) for name, read in TASK_READERS.items()]
        if "score" in table:
            score, progress = figure(table["score"]), figure(table.get("progress"))
            found = cls(score, progress, str(table.get("metric")), False, *others)
        else:
            score = figure(table.get("accuracy"))
            found = cls(score, score, ACCURACY, True, *others)
        if "clients" in table:
            found.clients = _figures(table["clients"]) or None
        return found


@dataclass(slots=True, eq=False)
class Round(Mapping[str, Any]):
    """All that is recorded of a round; round 0 is the evaluation before any training.

    It also reads as the line that it becomes: `entry["tasks"]["digits"]["accuracy"]`.
    """

    round: int
    tasks: dict[str, TaskRound] = field(default_factory=dict)
    allocation: dict[str, Any] = field(default_factory=dict)  # the allocator's own notes, as JSON values
    clients: int | None = None  # that were there; recorded where they come and go
    events: dict[str, list[Any]] = field(default_factory=dict)  # who came and went
    dropped: int | None = None  # jobs that did not return
    progress: OverTasks | None = None  # over the tasks, if each of them has one
    probability: dict[str, dict[str, float]] = field(default_factory=dict)  # spread over clients, by task
    saturated: int | None = None  # clients that are sure to train
    diverged: list[Divergence] = field(default_factory=list)  # tasks that were set back in this round
    phases: dict[str, float] = field(default_factory=dict)  # seconds by what they went into
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0  # since the run began
    measure: str = (
        ACCURACY  # what progress over tasks is called in this run: that, if all tasks are scored by it
    )

    @property
    def accuracy(self) -> OverTasks | None:
        """Over the tasks, if all of the run's are scored by accuracy."""
        return self.progress if self.measure == ACCURACY else None

    def of(self, task: str) -> TaskRound:
        """A task's figures, all None if the round has no such task."""
        return self.tasks.get(task) or TaskRound()

    def line(self) -> dict[str, Any]:
        """As JSON values, without what is missing."""
        return {name: self[name] for name in self}

    @classmethod
    def parse(cls, line: bytes) -> "Round | None":
        """From a line of the log; None if it is none."""
        table = decoded(line)
        return None if table is None else cls.read(table)

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "Round | None":
        """The reverse of `line`; None if it cannot be a round."""
        number, tasks = table.get("round"), table.get("tasks")
        if type(number) is not int or number < 0 or type(tasks) is not dict:
            return None
        if not all(type(values) is dict for values in tasks.values()):
            return None
        found = cls(number, {name: TaskRound.read(values) for name, values in tasks.items()})
        for name, value in table.items():
            if read := ROUND_READERS.get(name):
                setattr(found, PROGRESS if name == ACCURACY else name, read(value))
        if PROGRESS in table:
            found.measure = PROGRESS
        return found

    def __eq__(self, other: object) -> bool:
        """Also to its line as a dictionary."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return self.line() == (other.line() if isinstance(other, Round) else other)

    def __getitem__(self, name: str) -> Any:
        if name == "tasks":
            return {task: figures.line() for task, figures in self.tasks.items()}
        value = self._value(name)
        if value in NOTHING:
            raise KeyError(name)
        if isinstance(value, OverTasks):
            return {key: number for key, number in asdict(value).items() if number is not None}
        return [asdict(item) for item in value] if isinstance(value, list) else value

    def __iter__(self) -> Iterator[str]:
        return (name for name in ROUND_FIGURES if name == "tasks" or self._value(name) not in NOTHING)

    def _value(self, name: str) -> Any:
        if name in (ACCURACY, PROGRESS):
            return self.progress if name == self.measure else None
        return getattr(self, name) if name in ROUND_FIGURES else None

    def __len__(self) -> int:
        return sum(1 for _ in self)


TASK_FIGURES = tuple(entry.name for entry in fields(TaskRound))[4:]  # those besides the score
ROUND_FIGURES = tuple(
    name
    for entry in fields(Round)
    if entry.name != "measure"
    for name in ((ACCURACY, PROGRESS) if entry.name == PROGRESS else (entry.name,))
)
NOTHING: tuple[Any, ...] = (None, {}, [])  # what a line leaves out


PLAIN = ("accuracy", "score", "progress", *(name for name in TASK_FIGURES if name != "clients"))


def decoded(line: bytes) -> dict[str, Any] | None:
    """The table that a line of the log is; None if it is none."""
    try:
        table = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None


def sound(table: Mapping[str, Any]) -> bool:
    """Whether every figure of a round's table is a finite number, or missing."""
    for values in (*table["tasks"].values(), {"accuracy": table.get("seconds")}):
        told = [*map(values.get, PLAIN)]
        if [*map(figure, told)] != told:
            return False
    over_tasks = [table[key] for key in ("accuracy", "progress") if table.get(key) is not None]
    return all(isinstance(found, dict) and _figures(found) == found for found in over_tasks)


def figure(value: Any) -> float | None:
    """A finite number, or None."""
    if type(value) is float:  # nearly always
        return value if math.isfinite(value) else None
    return value if type(value) is int and abs(value) <= sys.float_info.max else None


def count(value: Any) -> int | None:
    """A whole number, or None."""
    found = figure(value)
    return int(found) if found is not None and found == int(found) else None


def _figures(value: Any) -> dict[str, float]:
    table = _table(value)
    if {*map(type, table.values())} == {float} and math.isfinite(sum(table.values())):  # nearly always
        return table
    return {key: found for key, item in table.items() if (found := figure(item)) is not None}


def _over_tasks(value: Any) -> OverTasks | None:
    found = _figures(value)
    if not {"mean", "minimum", "variance"} <= found.keys():
        return None
    return OverTasks(found["mean"], found["minimum"], found["variance"], found.get("cosine"))


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _lists(value: Any) -> dict[str, list[Any]]:
    return {key: item for key, item in _table(value).items() if isinstance(item, list)}


def _records(kind: type[Any]) -> Callable[[Any], list[Any]]:
    """Reads a list of records; fields that older versions did not write become 0, empty or false."""

    def read(value: Any) -> list[Any]:
        items = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
        return [kind(**{name: own(item.get(name)) for name, own in readers.items()}) for item in items]

    readers = {entry.name: FIELDS[entry.type] for entry in fields(kind)}
    return read


FIELDS: dict[Any, Callable[[Any], Any]] = {  # of a record, by type
    str: lambda value: value if isinstance(value, str) else "",
    int: lambda value: count(value) or 0,
    float: lambda value: figure(value) or 0.0,
    bool: lambda value: value is True,
}

COUNTS = {entry.name for entry in fields(TaskRound) if entry.type == int | None}
TASK_READERS: dict[str, Callable[[Any], Any]] = {
    name: count if name in COUNTS else figure for name in TASK_FIGURES
}

# How to read what a line may have besides its number and its tasks.
ROUND_READERS: dict[str, Callable[[Any], Any]] = {
    "allocation": _table,
    "clients": count,
    "events": _lists,
    "dropped": count,
    "accuracy": _over_tasks,
    "progress": _over_tasks,
    "probability": lambda value: {name: _figures(found) for name, found in _table(value).items()},
    "saturated": count,
    "diverged": _records(Divergence),
    "phases": _figures,
    "failures": _records(Failure),
    "seconds": lambda value: figure(value) or 0.0,
}
_unread = {*ROUND_FIGURES} - {"round", "tasks", *ROUND_READERS}
assert not _unread, f"figures of Round that ROUND_READERS cannot read: {_unread}"
