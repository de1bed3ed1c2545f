"""Reads a run folder: one function per file, and `Run` on top of them, which raises on any damage.

`history` uses the same functions for charts and pages and keeps whatever is readable.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.runs.checks import (
    jobs_problem,
    model_problem,
    summary_problem,
    table_problem,
    too_few_jobs,
    too_few_rounds,
    used_updates,
)
from fedmux.runs.layout import (
    ALLOCATION,
    ENVIRONMENT,
    EXPERIMENT,
    JOBS,
    LOCK,
    METRICS,
    MODELS,
    POPULATION,
    SUMMARY,
)
from fedmux.runs.rounds import Round, decoded, sound
from fedmux.runs.state import RunState, is_finished, run_state
from fedmux.toml import read_toml

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 1 << 16  # bytes read at a time from the end of a log
MOST_TASKS, MOST_ROUNDS = 2**16, 2**32  # that a record of a job can name
REMEDY = "restore the file, or train the run again"


def read_table(folder: Path) -> dict[str, Any]:
    """The resolved configuration."""
    if not os.path.exists(folder / EXPERIMENT):  # noqa: PTH110, pathlib's may raise
        raise FedmuxError(f"{folder / EXPERIMENT}: is missing")
    return read_toml(folder / EXPERIMENT)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Final figures; None before the run is complete."""
    return _read_json(folder / SUMMARY)


def read_environment(folder: Path) -> dict[str, Any] | None:
    """Versions and hardware; None if they were not recorded."""
    return _read_json(folder / ENVIRONMENT)


def read_population(folder: Path) -> dict[str, np.ndarray]:
    """Arrays by name: capacity, sizes, eligible and more."""
    try:
        with np.load(folder / POPULATION, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # zip, zlib and NumPy each have their own errors for damaged files
        raise FedmuxError(f"{folder / POPULATION}: cannot be read ({_reason(error)})") from None


def read_jobs(folder: Path, last: int | None = None) -> np.ndarray:
    """Who trained what, of dtype ALLOCATION: all jobs, or the `last` ones; skips a half-written record."""
    try:
        recorded = (folder / JOBS).stat().st_size // ALLOCATION.itemsize
        first = 0 if last is None else max(0, recorded - last)
        return np.fromfile(folder / JOBS, ALLOCATION, offset=first * ALLOCATION.itemsize)
    except FileNotFoundError:
        return np.empty(0, ALLOCATION)
    except OSError as error:
        raise FedmuxError(f"{folder / JOBS}: cannot be read ({_reason(error)})") from None


def read_rounds(folder: Path) -> tuple[list[Round], str | None]:
    """The rounds before the first damaged line, and what is wrong with the log."""
    try:
        log = _content(folder / METRICS) or b""
    except FedmuxError as error:
        return [], str(error)
    found = parse_rounds(log)
    return found.rounds, f"{folder / METRICS}: {found.problem}" if found.problem else None


def check_log(path: Path, length: int) -> str | None:
    """What is wrong with the beginning of a log, whose writer says that it was whole; None if nothing is."""
    with path.open("rb") as file:
        content = file.read(length)
    if path.name == METRICS:
        problem = parse_rounds(content).problem
        return f"{METRICS}: {problem}" if problem else None
    jobs = np.frombuffer(content[: length // ALLOCATION.itemsize * ALLOCATION.itemsize], ALLOCATION)
    problem = jobs_problem(jobs, MOST_TASKS, MOST_ROUNDS)
    return f"{JOBS}: {problem}" if problem else None


class Parsed(NamedTuple):
    """A log, or a part of it, as rounds."""

    rounds: list[Round]  # before the first line that is none, or that is out of order
    lines: int  # that are complete; the last one may not be, while the run is writing it
    odd: int | None  # the first line with a figure that is no number, which reads as missing

    @property
    def problem(self) -> str | None:
        if len(self.rounds) < self.lines:
            return f"line {len(self.rounds) + 1} is not an entry of a round"
        return None if self.odd is None else f"line {self.odd} has a figure that is not a finite number"


def parse_rounds(log: bytes, after: int = -1) -> Parsed:
    rounds: list[Round] = []
    lines, odd = log.split(b"\n")[:-1], None
    for number, line in enumerate(lines, 1):
        table = decoded(line)
        entry = None if table is None else Round.read(table)
        if table is None or entry is None or entry.round <= after:
            break
        if odd is None and not sound(table):
            odd = number
        rounds.append(entry)
        after = entry.round
    return Parsed(rounds, len(lines), odd)


def newest_rounds(folder: Path) -> Iterator[Round]:
    """Backwards from the last one; reads only as much of the log as the caller consumes."""
    try:
        file = (folder / METRICS).open("rb")
    except OSError:
        return
    with file:
        end, rest = file.seek(0, os.SEEK_END), b""  # `rest`: the end of a line that begins further up
        while end:
            begin = max(0, end - BLOCK)
            file.seek(begin)
            rest, *lines = (file.read(end - begin) + rest).split(b"\n")
            found = [rest, *lines] if begin == 0 else lines
            yield from (entry for line in reversed(found) if (entry := Round.parse(line)) is not None)
            end = begin


def read_clients(file: Path) -> dict[str, int]:
    """The numbers of real clients by their own ids."""
    numbers = _read_json(file) or {}
    whole = [number for number in numbers.values() if type(number) is int and number >= 0]
    if len({*whole}) < len(numbers):
        raise FedmuxError(f"{file}: does not number the clients; restore it, or begin with another output")
    return numbers


def read_releases(file: Path, shape: tuple[int, int] | None = None) -> np.ndarray:
    """N x S: updates that real clients were asked for."""
    try:
        counts: np.ndarray = np.load(file, allow_pickle=False)
    except Exception as error:  # zlib and NumPy each have their own errors
        raise FedmuxError(f"{file}: cannot be read ({_reason(error)}); {REMEDY}") from None
    if counts.dtype.kind not in "iu" or counts.ndim != 2 or (shape and counts.shape != shape):
        raise FedmuxError(f"{file}: does not count the releases of this run's clients; {REMEDY}")
    return counts


def newest_problem(folder: Path) -> str | None:
    """What is wrong with the last lines of the log of rounds."""
    try:
        with (folder / METRICS).open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - BLOCK)
            file.seek(begin)
            lines = file.read().split(b"\n")[1 if begin else 0 : -1]
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{folder / METRICS}: cannot be read ({_reason(error)})"
    tables = map(decoded, lines)
    whole = all(table is not None and Round.read(table) is not None and sound(table) for table in tables)
    return None if whole else f"{folder / METRICS}: one of its last lines is not an entry of a round"


def read_text(path: Path) -> str:
    """A file for display; empty if it cannot be read."""
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""


def _read_json(path: Path) -> dict[str, Any] | None:
    """A file's table; None if there is no such file."""
    content = _content(path)
    if content is None:
        return None
    try:
        table = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FedmuxError(f"{path}: cannot be read ({_reason(error)})") from None
    if not isinstance(table, dict):
        raise FedmuxError(f"{path}: is not a table")
    return table


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FedmuxError(f"{path}: cannot be read ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """In one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0]


class Run:
    """Reads a run, finished or not; what is damaged is a FedmuxError that names the file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.is_at(self.path):
            if (self.path / LOCK).is_file():
                raise FedmuxError(f"{path}: stopped before it began; `fedmux run` with -o {path} begins it")
            raise FedmuxError(f"{path}: is not a run folder; `fedmux list` shows those there are")

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether a run has started there; an experiment file alone does not count."""
        described = all((path / name).is_file() for name in (EXPERIMENT, ENVIRONMENT))
        return described or (path / METRICS).is_file()

    @property
    def table(self) -> dict[str, Any]:
        """The resolved configuration."""
        table = read_table(self.path)
        if problem := table_problem(table):
            raise FedmuxError(f"{self.path / EXPERIMENT}: {problem}; {REMEDY}")
        return table

    @property
    def finished(self) -> bool:
        return is_finished(self.path)

    @property
    def state(self) -> RunState:
        """Running, finished, interrupted or failed, with the reason."""
        return run_state(self.path)

    @property
    def summary(self) -> dict[str, Any]:
        """Final figures; FedmuxError before the run is complete."""
        summary = read_summary(self.path)
        if summary is None:
            state = self.state
            after = state.again or "wait until it has finished"
            raise FedmuxError(f"{self.path}: not finished, {state}; {after}")
        if problem := summary_problem(summary, shown=False):
            raise FedmuxError(f"{self.path / SUMMARY}: {problem}; {REMEDY}")
        return summary

    @property
    def metrics(self) -> list[Round]:
        """The rounds, starting before any training; skips an incomplete last line of an unfinished run."""
        rounds, problem = read_rounds(self.path)
        if not problem and self.finished:
            few = too_few_rounds(self.path / METRICS, rounds, read_summary(self.path))
            problem = few and f"{self.path / METRICS}: {few}"
        if problem:
            raise FedmuxError(f"{problem}; {REMEDY}")
        return rounds

    @property
    def allocation(self) -> np.ndarray:
        """Who trained what, with which probability and weight: a structured array of dtype ALLOCATION."""
        jobs, table = read_jobs(self.path), self.table
        problem = jobs_problem(jobs, len(table["task"]), table["rounds"])
        if not problem and self.finished:
            used = used_updates(read_summary(self.path)) or 0
            problem = too_few_jobs(self.path / JOBS, used, finished=True)
        if problem:
            raise FedmuxError(f"{self.path / JOBS}: {problem}; {REMEDY}")
        return jobs

    def model(self, task: str) -> "dict[str, Tensor]":
        """Final weights of a task."""
        from safetensors.torch import load_file

        file = self.path / MODELS / f"{task}.safetensors"
        if problem := model_problem(file):
            names = [each["name"] for each in self.table["task"]]
            if task not in names:
                raise FedmuxError(f'{self.path}: has no task "{task}"; its tasks are {", ".join(names)}')
            if not self.finished:
                raise FedmuxError(f"{self.path}: no final models, {self.state}; {self.state.again or 'wait'}")
            raise FedmuxError(f"{file}: {problem}; {REMEDY}")
        return load_file(file)
