"""The record of a round: what `metrics.jsonl` holds a line of, and what observers of a run are given.

A round knows its figures by name and type. Whatever a damaged or foreign line has instead of a finite number
is read as "not there".
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


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
    """Accuracy over the tasks."""

    mean: float
    minimum: float
    variance: float
    cosine: float | None = None


@dataclass(slots=True)
class TaskRound:
    """One task's figures in a round; None: not measured."""

    accuracy: float | None = None
    loss: float | None = None
    clients: dict[str, float] | None = None  # how the accuracy is spread over the clients' own points
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

    def line(self) -> dict[str, Any]:
        return {name: value for name in TASK_FIGURES if (value := getattr(self, name)) is not None}

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "TaskRound":
        found = {name: figure(table.get(name)) for name in TASK_FIGURES if name != "clients"}
        clients = table.get("clients")
        return cls(**found, clients=_figures(clients) if isinstance(clients, dict) else None)  # type: ignore[arg-type]


@dataclass(slots=True)
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
    accuracy: OverTasks | None = None
    probability: dict[str, dict[str, float]] = field(default_factory=dict)  # spread over clients, by task
    saturated: int | None = None  # clients that are sure to train
    diverged: list[Divergence] = field(default_factory=list)  # tasks that were set back in this round
    phases: dict[str, float] = field(default_factory=dict)  # seconds by what they went into
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0  # since the run began

    def line(self) -> dict[str, Any]:
        """As JSON values; without what is not there."""
        line: dict[str, Any] = {"round": self.round}
        line["tasks"] = {name: task.line() for name, task in self.tasks.items()}
        for name in ROUND_FIGURES:
            value = getattr(self, name)
            if value is None or value == {} or value == []:
                continue
            if isinstance(value, list):
                value = [asdict(item) for item in value]
            line[name] = asdict(value) if isinstance(value, OverTasks) else value
        return line

    @classmethod
    def parse(cls, line: bytes) -> "Round | None":
        """From a line of the log; None if it is none."""
        try:
            table = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return cls.read(table) if isinstance(table, dict) else None

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "Round | None":
        """The reverse of `line`; None if it cannot be a round."""
        number, tasks = table.get("round"), table.get("tasks")
        if type(number) is not int or number < 0 or not isinstance(tasks, dict):
            return None
        if not all(isinstance(values, dict) for values in tasks.values()):
            return None
        return cls(
            round=number,
            tasks={name: TaskRound.read(values) for name, values in tasks.items()},
            allocation=_table(table.get("allocation")),
            clients=figure(table.get("clients")),  # type: ignore[arg-type]
            events={
                key: value for key, value in _table(table.get("events")).items() if isinstance(value, list)
            },
            dropped=figure(table.get("dropped")),  # type: ignore[arg-type]
            accuracy=_over_tasks(_figures(table.get("accuracy"))),
            probability={name: _figures(found) for name, found in _table(table.get("probability")).items()},
            saturated=figure(table.get("saturated")),  # type: ignore[arg-type]
            diverged=[Divergence(**_known(Divergence, item)) for item in _tables(table.get("diverged"))],
            phases=_figures(table.get("phases")),
            failures=[Failure(**_known(Failure, item)) for item in _tables(table.get("failures"))],
            seconds=figure(table.get("seconds")) or 0.0,
        )

    def __getitem__(self, key: str) -> Any:
        return self.line()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.line())

    def __len__(self) -> int:
        return len(self.line())


TASK_FIGURES = tuple(entry.name for entry in fields(TaskRound))
ROUND_FIGURES = tuple(entry.name for entry in fields(Round) if entry.name not in ("round", "tasks"))


def figure(value: Any) -> float | int | None:
    """A finite number, or None."""
    if type(value) is float:  # nearly always
        return value if math.isfinite(value) else None
    return value if type(value) is int and abs(value) < 2**53 else None


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tables(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _figures(value: Any) -> dict[str, float]:
    return {key: found for key, item in _table(value).items() if (found := figure(item)) is not None}


def _over_tasks(found: dict[str, float]) -> OverTasks | None:
    if not {"mean", "minimum", "variance"} <= found.keys():
        return None
    return OverTasks(found["mean"], found["minimum"], found["variance"], found.get("cosine"))


def _known(kind: type[Any], item: Mapping[str, Any]) -> dict[str, Any]:
    """Its fields; what an older version did not write is 0, nothing or false."""
    empty: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False}
    return {
        entry.name: value if isinstance(value := item.get(entry.name), entry.type) else empty[entry.type]  # type: ignore[arg-type]
        for entry in fields(kind)
    }
