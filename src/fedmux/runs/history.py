"""What a run left behind, read for charts and pages: whatever can be read is there, nothing here raises.

A folder may be half-written, damaged or no run at all; its history then says so in `state` and `problem`.
"""

import json
import math
import os
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedmux.population import Bools
from fedmux.runs.compared import cells
from fedmux.runs.layout import ALLOCATION

FINISHED, UNDER_WAY, BROKEN = "finished", "running or stopped", "broken"
SIGNS = ("metrics.jsonl", "environment.json", "summary.json", "allocation.bin")  # one of them makes it a run
MOST_CLIENTS = 10**7  # a damaged file that speaks of more is not believed
DEPTH = 3  # folders below one that holds runs: runs/COMPARISON/runs/CELL

Entry = dict[str, Any]  # of a round


@dataclass(eq=False)
class History:
    """A run for the eye: its configuration, the figures of each round, who trained what."""

    path: Path
    name: str = ""
    method: str = ""
    label: str = ""  # the method, or the name of the comparison's cell without the seed
    seed: int = 0
    tasks: list[str] = field(default_factory=list)
    rounds: int = 0  # planned
    state: str = UNDER_WAY
    problem: str | None = None
    table: dict[str, Any] = field(default_factory=dict, repr=False)
    metrics: list[Entry] = field(default_factory=list, repr=False)
    summary: dict[str, Any] | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: str | Path) -> "History":
        """The run in a folder, as far as it can be read."""
        path = Path(path)
        if not is_run(path):
            reason = "is not a run folder" if _is_folder(path) else "no such folder"
            return cls(path, name=path.name, label=path.name, state=BROKEN, problem=reason)
        table, table_problem = _read_table(path / "experiment.toml")
        metrics, metrics_problem = _read_metrics(path / "metrics.jsonl")
        summary, summary_problem = _read_summary(path / "summary.json")
        problem = table_problem or metrics_problem or summary_problem
        method = _method(table, summary)
        return cls(
            path=path,
            name=str(table.get("name") or path.name),
            method=method,
            label=_label(path) or method or path.name,
            seed=_whole(table.get("seed")),
            tasks=_tasks(table, metrics),
            rounds=_whole(table.get("rounds")) or (metrics[-1]["round"] if metrics else 0),
            state=BROKEN if problem else UNDER_WAY if summary is None else FINISHED,
            problem=problem,
            table=table,
            metrics=metrics,
            summary=summary,
        )

    @cached_property
    def population(self) -> dict[str, np.ndarray]:
        """The arrays of population.npz; empty if there is none or it cannot be read."""
        try:
            with np.load(self.path / "population.npz", allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except Exception:  # zip, zlib and NumPy each have their own errors for damaged files
            return {}

    @cached_property
    def allocation(self) -> np.ndarray:
        """Jobs, of dtype ALLOCATION; records that cannot be of this run are left out."""
        try:
            data = (self.path / "allocation.bin").read_bytes()
        except OSError:
            data = b""
        jobs = np.frombuffer(data[: len(data) // ALLOCATION.itemsize * ALLOCATION.itemsize], ALLOCATION)
        possible = (jobs["task"] < len(self.tasks)) & (jobs["round"] <= self.rounds)
        return jobs[possible & (jobs["client"] < self.clients)]

    @property
    def clients(self) -> int:
        """N, those included that join later; 0 if nothing says so."""
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
        last = self.metrics[-1]["tasks"] if self.metrics else {}
        rounds = {task: number(values, "diverged") for task, values in last.items()}
        return {task: int(round) for task, round in rounds.items() if round}

    @property
    def last_round(self) -> int:
        """Of those that are recorded."""
        return int(self.metrics[-1]["round"]) if self.metrics else 0


def number(value: Any, *keys: str) -> float | None:
    """The finite number under nested keys, None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if type(value) is float:  # nearly always
        return value if math.isfinite(value) else None
    return float(value) if type(value) is int and abs(value) < 2**53 else None


def is_run(path: Path) -> bool:
    """Whether a run has been at work in a folder; an experiment file alone is none."""
    return any(os.path.isfile(path / name) for name in SIGNS)  # noqa: PTH113, pathlib's may raise


def find(paths: Iterable[str | Path]) -> list[History]:
    """The runs at or below each path: run folders, comparisons, folders that hold either."""
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        below = list(_below(path, DEPTH)) if _is_folder(path) else [path]
        for folder in below:
            found.setdefault(os.path.realpath(folder) if is_run(folder) else str(folder), folder)
    return [History.read(folder) for folder in found.values()]


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


def _read_table(path: Path) -> tuple[dict[str, Any], str | None]:
    try:
        return tomllib.loads(path.read_text("utf-8")), None
    except FileNotFoundError:
        return {}, f"{path.name} is missing"
    except (OSError, ValueError, RecursionError) as error:  # of TOML and of UTF-8 too
        return {}, f"{path.name} cannot be read ({_first_line(error)})"


def _read_summary(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    try:
        summary = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, RecursionError) as error:
        return None, f"{path.name} cannot be read ({_first_line(error)})"
    return (summary, None) if isinstance(summary, dict) else (None, f"{path.name} is not a table")


def _read_metrics(path: Path) -> tuple[list[Entry], str | None]:
    """Entries up to the first that is none. The last line may be half-written: the run is at work on it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], None
    except OSError as error:
        return [], f"{path.name} cannot be read ({_first_line(error)})"
    entries: list[Entry] = []
    lines = data.split(b"\n")
    for position, line in enumerate(lines[:-1]):
        entry = entry_of(line)
        if entry is None or (entries and entry["round"] <= entries[-1]["round"]):
            return entries, f"{path.name}: line {position + 1} is not an entry of a round"
        entries.append(entry)
    return entries, None


def entry_of(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or type(entry.get("round")) is not int or entry["round"] < 0:
        return None
    tasks = entry.get("tasks")
    sound = isinstance(tasks, dict) and all(isinstance(values, dict) for values in tasks.values())
    return entry if sound else None


def _method(table: dict[str, Any], summary: dict[str, Any] | None) -> str:
    method = table.get("method") or (summary or {}).get("method") or ""
    return str(method.get("name", "") if isinstance(method, dict) else method)


def _tasks(table: dict[str, Any], metrics: list[Entry]) -> list[str]:
    listed = table.get("task")
    tables = [task for task in listed if isinstance(task, dict)] if isinstance(listed, list) else []
    names: list[str] = [task["name"] for task in tables if isinstance(task.get("name"), str)]
    if names and len(names) == len(tables):
        return names
    return list(dict.fromkeys(name for entry in metrics for name in entry["tasks"]))


def _label(path: Path) -> str | None:
    """What a comparison calls the run, without its seed; None if it is in no comparison."""
    return _labels_in(path.parent).get(path.name)


def _labels_in(runs: Path) -> dict[str, str]:
    """The label of each run in the folder `runs` of a comparison, in its order; empty for other folders."""
    plan = runs.parent / "comparison.toml"
    try:
        return _labels(plan, plan.stat().st_mtime_ns) if runs.name == "runs" else {}
    except OSError:
        return {}


@lru_cache(maxsize=32)
def _labels(plan: Path, _modified: int) -> dict[str, str]:
    """As a comparison names its runs, without validating any of them."""
    try:
        return {cell.name: cell.label for cell in cells(plan.parent)}
    except Exception:  # a damaged plan: the runs are called by their methods
        return {}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _first_line(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0]
