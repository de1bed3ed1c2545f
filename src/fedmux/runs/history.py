"""A run as charts and pages read it: everything readable is there, and nothing raises.

A folder may be incomplete, damaged or not a run at all; `state`, `reason` and `problem` say so.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.population import Bools
from fedmux.runs.compared import cells
from fedmux.runs.finals import overall, score
from fedmux.runs.layout import ALLOCATION, COMPARISON, ENVIRONMENT, JOBS, METRICS, RUNS, SUMMARY
from fedmux.runs.reading import read_jobs, read_population
from fedmux.runs.rounds import Round
from fedmux.runs.scale import ACCURACIES, Scale, over_tasks_of, scales_of
from fedmux.runs.state import INTERRUPTED
from fedmux.runs.survey import Survey, paused

DAMAGED = "damaged"  # something cannot be read, whatever else the run's state is
SIGNS = (METRICS, ENVIRONMENT, SUMMARY, JOBS)  # one of them makes it a run
MOST_CLIENTS = 10**7  # a file that claims more is damaged
DEPTH = 3  # folders below one that holds runs: runs/COMPARISON/runs/CELL

Found = TypeVar("Found")


@dataclass(eq=False)
class History:
    """A snapshot of a run: its configuration, the figures of each round, who trained what."""

    path: Path
    name: str = ""
    method: str = ""
    label: str = ""  # the method, or the name of the comparison's cell without the seed
    seed: int = 0
    tasks: list[str] = field(default_factory=list)
    rounds: int = 0  # planned
    state: str = INTERRUPTED
    reason: str | None = None  # why it was interrupted or failed
    again: str | None = None  # what continues it
    problem: str | None = None  # what is damaged
    table: dict[str, Any] = field(default_factory=dict, repr=False)
    metrics: list[Round] = field(default_factory=list, repr=False)
    summary: dict[str, Any] | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: str | Path, live: bool = False) -> "History":
        """The run in a folder, as far as it can be read; `live`: it may be changing while it is read."""
        path = Path(path)
        if not is_run(path):
            reason = "is not a run folder" if _is_folder(path) else "no such folder"
            return cls(path, name=path.name, label=path.name, state=DAMAGED, problem=reason)
        survey = Survey.of(path, live=live)
        table, metrics, summary = survey.table, survey.rounds, survey.summary
        method = _method(table, summary)
        return cls(
            path=path,
            name=str(table.get("name") or path.name),
            method=method,
            label=_labels_in(path.parent).get(path.name) or method or path.name,
            seed=_whole(table.get("seed")),
            tasks=_tasks(table, metrics),
            rounds=_whole(table.get("rounds")) or (metrics[-1].round if metrics else 0),
            state=DAMAGED if survey.problems else survey.state.name,
            reason=survey.state.reason,
            again=survey.state.again,
            problem=survey.problem,
            table=table,
            metrics=metrics,
            summary=summary,
        )

    @cached_property
    def population(self) -> dict[str, np.ndarray]:
        """The arrays of population.npz; empty if it is missing or damaged."""
        return _tried(read_population, self.path)[0] or {}

    @cached_property
    def allocation(self) -> np.ndarray:
        """Jobs, of dtype ALLOCATION, without records that cannot belong to this run."""
        jobs = _tried(read_jobs, self.path)[0]
        if jobs is None:
            return np.empty(0, ALLOCATION)
        possible = (jobs["task"] < len(self.tasks)) & (jobs["round"] <= self.rounds)
        return jobs[possible & (jobs["client"] < self.clients)]

    @property
    def clients(self) -> int:
        """N, including clients that join later; 0 if unknown."""
        sizes = self.population.get("sizes")
        if sizes is not None and sizes.ndim == 2:
            return len(sizes)
        population = self.table.get("population")
        clients = _whole(population.get("clients")) if isinstance(population, dict) else 0
        return clients if clients <= MOST_CLIENTS else 0

    @property
    def available(self) -> Bools:
        """N x S: who could train what; everybody if nothing is known."""
        shape = (self.clients, len(self.tasks))
        found = [self.population.get(name) for name in ("capacity", "sizes", "eligible")]
        capacity, sizes, eligible = found
        if capacity is None or sizes is None or eligible is None:
            return np.ones(shape, bool)
        if capacity.shape != shape[:1] or sizes.shape != shape or eligible.shape != shape:
            return np.ones(shape, bool)
        able: Bools = (capacity > 0)[:, None] & (sizes > 0) & eligible.astype(bool)
        return able

    @property
    def diverged(self) -> dict[str, int]:
        """Tasks that were paused, with the round."""
        last = self.metrics[-1].tasks if self.metrics else {}
        return {task: found.diverged for task, found in last.items() if found.diverged}

    @property
    def paused(self) -> list[str]:
        """A line for each task that was paused."""
        return paused(self.metrics)

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """How to read the scores of each task."""
        known = scales_of(self.table)
        return {task: known.get(task, ACCURACIES) for task in self.tasks}

    @property
    def measure(self) -> str:
        """What figures over tasks are called: accuracy or progress."""
        return over_tasks_of(self.scales.values())

    def overall(self, which: str = "mean") -> float | None:
        """Over tasks (mean, minimum or variance): the final one, or the newest of an unfinished run."""
        measure = self.measure
        final = overall(self.summary, which) if measure in (self.summary or {}) else None
        scored = (
            entry.progress for entry in reversed(self.metrics) if entry.progress and entry.measure == measure
        )
        return getattr(next(scored, None), which, None) if final is None else final

    def score(self, task: str) -> float | None:
        """Of a task: the final one, or the newest of an unfinished run."""
        final = score(self.summary, task)
        scored = (entry.of(task).score for entry in reversed(self.metrics))
        return next((found for found in scored if found is not None), None) if final is None else final

    @property
    def last_round(self) -> int:
        """The last recorded one."""
        return self.metrics[-1].round if self.metrics else 0


def is_run(path: Path) -> bool:
    """Whether a run has worked in a folder; an experiment file alone does not count."""
    return any(os.path.isfile(path / name) for name in SIGNS)  # noqa: PTH113, pathlib's may raise


def find(paths: Iterable[str | Path]) -> list[History]:
    """The runs at or below each path: run folders, comparisons, folders that hold either."""
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        below = list(_below(path, DEPTH)) if _is_folder(path) else [path]
        for folder in below:
            found.setdefault(os.path.realpath(folder) if is_run(folder) else str(folder), folder)
    return [History.read(folder) for folder in found.values()]


def _tried(read: Callable[[Path], Found], path: Path) -> tuple[Found | None, str | None]:
    """What is read, or what is wrong with it."""
    try:
        return read(path), None
    except FedmuxError as error:
        return None, str(error)


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112, pathlib's may raise


def _below(path: Path, depth: int) -> Iterator[Path]:
    if is_run(path):
        yield path
    elif depth:
        try:
            inside = [item for item in path.iterdir() if _is_folder(item) and item.name[0] != "."]
        except OSError:
            return
        rank = {name: place for place, name in enumerate(_labels_in(path))}  # a comparison's own order
        for folder in sorted(inside, key=lambda item: (rank.get(item.name, len(rank)), item.name)):
            yield from _below(folder, depth - 1)


def _method(table: dict[str, Any], summary: dict[str, Any] | None) -> str:
    method = table.get("method") or (summary or {}).get("method") or ""
    return str(method.get("name", "") if isinstance(method, dict) else method)


def _tasks(table: dict[str, Any], metrics: list[Round]) -> list[str]:
    listed = table.get("task")
    tables = [task for task in listed if isinstance(task, dict)] if isinstance(listed, list) else []
    names: list[str] = [task["name"] for task in tables if isinstance(task.get("name"), str)]
    if names and len(names) == len(tables):
        return names
    return list(dict.fromkeys(name for entry in metrics for name in entry.tasks))


def _labels_in(runs: Path) -> dict[str, str]:
    """The label of each run in the folder `runs` of a comparison, in its order; empty for other folders."""
    plan = runs.parent / COMPARISON
    try:
        return _labels(plan.parent, plan.stat().st_mtime_ns) if runs.name == RUNS else {}
    except OSError:
        return {}


@lru_cache(maxsize=32)
def _labels(comparison: Path, _modified: int) -> dict[str, str]:
    try:
        return {cell.name: cell.label for cell in cells(comparison)}
    except FedmuxError:  # a damaged plan: the runs are called by their methods
        return {}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
