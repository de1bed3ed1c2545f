"""All that can be read of a run, whatever has happened to its folder; each damaged file has a line."""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

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
from fedmux.runs.layout import ENVIRONMENT, EXPERIMENT, JOBS, METRICS, MODELS, POPULATION, SUMMARY
from fedmux.runs.reading import (
    newest_problem,
    newest_rounds,
    read_environment,
    read_jobs,
    read_rounds,
    read_summary,
    read_table,
)
from fedmux.runs.rounds import Round
from fedmux.runs.state import FINISHED, RUNNING, RunState, run_state

LATEST_JOBS = 1000  # that are looked at where only the ends of logs are
NEEDED = ("capacity", "sizes", "eligible")  # in population.npz

Found = TypeVar("Found")


@dataclass
class Survey:
    """What is left of a run; files that cannot be read are empty here and have a line in `problems`."""

    path: Path
    state: RunState
    table: dict[str, Any] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)  # each begins with the name of a file

    @classmethod
    def of(cls, path: Path, whole: bool = True, live: bool = False) -> "Survey":
        """Unless `whole`, only the ends of the logs are looked at, and of the rounds only the newest kept.

        Files that may be changing, as they may if it is `live`, are not compared with each other.
        """
        found = cls(path, run_state(path))
        table = found._tried(read_table)
        found.table = table or {}
        if table is not None and (problem := table_problem(table)):
            found._damaged(EXPERIMENT, problem)
        found._tried(read_environment)
        if not (path / ENVIRONMENT).exists():
            found._damaged(ENVIRONMENT, "is missing")
        found.summary = found._tried(read_summary)
        if found.summary is not None and (problem := summary_problem(found.summary)):
            found._damaged(SUMMARY, f"{problem}; the rounds can still be read")
        found._look_at_rounds(whole)
        if found.state.name == FINISHED or not (live or found.state.name == RUNNING):
            found._look_at_jobs(whole)
            found._look_at_arrays()
        return found

    @property
    def problem(self) -> str | None:
        """All of them in one line."""
        return "; ".join(self.problems) or None

    @property
    def progress(self) -> str:
        """The state in words, with how far the run is."""
        last, planned = self.rounds[-1].round if self.rounds else 0, self.table.get("rounds", "?")
        if self.state.name == RUNNING:
            parts = [RUNNING, f"round {last + 1} of {planned}", self.state.sign_of_life()]
            return ", ".join(part for part in parts if part)
        if self.state.name == FINISHED:
            return FINISHED
        return f"{self.state.name} after round {last} of {planned}" + (
            f": {self.state.reason}" if self.state.reason else ""
        )

    def _look_at_rounds(self, whole: bool) -> None:
        if whole:
            self.rounds, problem = read_rounds(self.path)
        else:
            self.rounds, problem = _newest(self.path), newest_problem(self.path)
        if problem is None and (few := too_few_rounds(self.path / METRICS, self.rounds, self.summary)):
            problem = f"{METRICS}: {few}"
        if problem:
            left = f"; {len(self.rounds)} rounds can still be read" if whole and self.rounds else ""
            self.problems.append(problem.removeprefix(f"{self.path}/") + left)

    def _look_at_jobs(self, whole: bool) -> None:
        jobs = self._tried(lambda path: read_jobs(path, None if whole else LATEST_JOBS))
        if jobs is None:
            return
        last = self.rounds[-1].round if self.rounds else 0
        problem = jobs_problem(jobs, len(self._tasks()) or 2**16, 2**32)
        if not problem and (self.summary or last):
            problem = too_few_jobs(self.path / JOBS, self._used(), self.state.name == FINISHED)
        if problem:
            self._damaged(JOBS, f"{problem}; the rounds can still be read")
        elif not self.problems and len(jobs) and int(jobs["round"][-1]) > last + 1:
            self._damaged(METRICS, f"ends after round {last}, {JOBS} after round {int(jobs['round'][-1])}")

    def _look_at_arrays(self) -> None:
        if (self.rounds or self.summary) and (problem := _population_problem(self.path / POPULATION)):
            self._damaged(POPULATION, f"{problem}; all but what is said of clients can still be read")
        for task in self._tasks() if self.state.name == FINISHED else []:
            if problem := model_problem(self.path / MODELS / f"{task}.safetensors"):
                self._damaged(f"{MODELS}/{task}.safetensors", f"{problem}; the figures can still be read")

    def _used(self) -> int:
        """Updates that were used, as far as is known; the last round of an unfinished run may lack jobs."""
        told = used_updates(self.summary)
        if told is not None:
            return told
        return sum(figures.uploads or 0 for entry in self.rounds[:-1] for figures in entry.tasks.values())

    def _tasks(self) -> list[str]:
        tasks = self.table.get("task")
        named = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
        return [task["name"] for task in named if isinstance(task.get("name"), str)]

    def _damaged(self, name: str, problem: str) -> None:
        self.problems.append(f"{name}: {problem}")

    def _tried(self, read: Callable[[Path], Found]) -> Found | None:
        """What is read; None if that fails, which is noted."""
        try:
            return read(self.path)
        except FedmuxError as error:
            self.problems.append(str(error).removeprefix(f"{self.path}/"))
            return None


def _newest(folder: Path) -> list[Round]:
    """The last round, and before it the last one with scores."""
    found: list[Round] = []
    for entry in newest_rounds(folder):
        scored = any(task.score is not None for task in entry.tasks.values())
        if not found or scored:
            found.insert(0, entry)
        if scored:
            break
    return found


def _population_problem(file: Path) -> str | None:
    """From the list of what the archive holds."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile):
        return "is damaged or cut"
    lacking = [name for name in NEEDED if f"{name}.npy" not in names]
    return f"has no {lacking[0]}" if lacking else None


def paused(rounds: Sequence[Round]) -> list[str]:
    """A line for each task that is paused after the last of these rounds, with the reason if it is there."""
    last = rounds[-1].tasks if rounds else {}
    found = {task: figures.diverged for task, figures in last.items() if figures.diverged}
    reasons = {one.task: one.reason for entry in rounds for one in entry.diverged if one.paused}
    return [
        f'task "{task}" is paused since round {round}, it has diverged'
        + (f": {reasons[task]}" if task in reasons else "")
        for task, round in found.items()
    ]
