"""What all trackers share: when they open, what they log, how they catch up.

Each writes into the run's own folder, steps are rounds, and nothing leaves the machine. The run folder is
the source: on opening, a tracker first writes the rounds of `metrics.jsonl` that it lacks. So every round is
logged once, even if the run was killed and resumed, or had no tracker before.
"""

import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from fedmux.errors import FedmuxError
from fedmux.runs.reading import Run
from fedmux.runs.rounds import Round

LAST = "seconds"  # of every round, and written last: a round that has it is all there


class Tracker(ABC):
    """Observes one run. It opens itself at the first round it sees; `close` or leaving `with` ends it."""

    name: ClassVar[str]
    package: ClassVar[str | None] = None  # required package; the pip extra is named after the tracker

    def __init__(self, run: str | Path) -> None:
        if self.package and importlib.util.find_spec(self.package) is None:
            raise FedmuxError(
                f'tracker "{self.name}" needs {self.package}: pip install "fedmux[{self.name}]"'
            )
        self.run = Path(run)
        self.last: int | None = None  # round that is logged; None before it is open

    @abstractmethod
    def open(self, folder: Path, table: dict[str, Any], name: str) -> int:
        """Start or continue in the run's folder; returns the last round already logged, or -1."""

    @abstractmethod
    def log(self, round: int, values: dict[str, float]) -> None:
        """One round's figures."""

    @abstractmethod
    def end(self, summary: dict[str, Any] | None) -> None:
        """Write the summary of a finished run (None: not finished) and close the files."""

    def __call__(self, entry: Round) -> None:
        last = self._catch_up() if self.last is None else self.last
        if entry.round > last:
            self._log(entry)

    def close(self) -> None:
        """Also logs a run that ended before the tracker saw it."""
        if self.last is None:
            self._catch_up()
        run = Run(self.run)
        self.last = None
        self.end(run.summary if run.finished else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        began = (
            self.last is not None
        )  # if not, the run may have been refused and the folder belong to another
        if began or kind is None:
            self.close()

    def _catch_up(self) -> int:
        run = Run(self.run)
        self.last = self.open(run.path, run.table, run.path.resolve().name)
        for entry in run.metrics:
            if entry.round > self.last:
                self._log(entry)
        return self.last

    def _log(self, entry: Round) -> None:
        self.last = entry.round
        self.log(entry.round, figures(entry))


def figures(entry: Round) -> dict[str, float]:
    """A round's figures as single numbers by name, `seconds` last; without lists; failures are counted."""
    line = entry.line()
    measure = "progress" if "progress" in line else "accuracy"
    tree = {measure: line.pop(measure, {}), "task": line.pop("tasks")}
    tree |= {key: value for key, value in line.items() if key not in ("round", LAST)}
    if entry.failures:
        tree["failures"] = len(entry.failures)
    return {**dict(_numbers(tree)), LAST: entry.seconds}


def _numbers(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", value


def parameters(table: Mapping[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    """A configuration as single values: `population.clients`, `task.digits.learning_rate`."""
    flat: dict[str, str | int | float | bool] = {}
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            value = {str(item.get("name", number)): item for number, item in enumerate(value)}
        if isinstance(value, Mapping):
            flat |= parameters(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value if isinstance(value, str | int | float) else json.dumps(value)
    return flat


def final(summary: Mapping[str, Any]) -> dict[str, float]:
    """A summary as single numbers, `final/accuracy/mean` and so on."""
    return dict(_numbers({"final": {**summary, "task": summary["tasks"], "tasks": {}}}))
