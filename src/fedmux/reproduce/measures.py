"""What is read off a finished run for a paper's table. `name@argument` gives a measure its argument."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.runs.finals import number, overall, progress
from fedmux.runs.history import History
from fedmux.runs.rounds import Round
from fedmux.runs.statistics import FINAL_ROUNDS

Read = Callable[[History, History | None, str], float | None]  # run, its baseline's of that seed, argument


@dataclass(frozen=True)
class Measure:
    title: str
    form: str  # percent, plain or bytes
    read: Read
    from_curves: bool = True  # final accuracies and the columns of curves.csv.gz suffice

    def text(self, value: float, spread: float | None = None) -> str:
        """A number for a table, with as many digits as it needs, and its deviation."""
        scale, unit = {"percent": (100, " %"), "bytes": (2**-20, " MiB")}.get(self.form, (1, ""))
        if not value and not spread:
            return f"0{unit}"
        size = abs(scale * value)
        digits = {"percent": 1, "bytes": 0}.get(self.form, 3 if size < 5 else 1 if size < 1000 else 0)
        numbers = [f"{scale * number:,.{digits}f}" for number in (value, spread) if number is not None]
        return " ± ".join(numbers) + unit


def _summary(key: str) -> Read:
    return lambda run, _base, _at: number(run.summary, key)


def _overall(which: str) -> Read:
    return lambda run, _base, _at: overall(run.summary, which)


def _relative(of: str) -> Read:
    """To the baseline's run of the same seed."""

    def read(run: History, base: History | None, _at: str) -> float | None:
        mine = overall(run.summary, of)
        theirs = overall(base.summary, of) if base else None
        return mine / theirs if mine is not None and theirs else None

    return read


def _task_spread(run: History, _base: History | None, _at: str) -> float | None:
    found = [progress(run.summary, task) for task in run.tasks]
    known = [value for value in found if value is not None]
    return float(np.std(known)) if known else None


def _job_share(run: History, _base: History | None, task: str) -> float | None:
    total = sum(_over_tasks(entry, "jobs") for entry in run.metrics)
    if not total or task not in run.tasks:
        return None
    return sum(entry.of(task).jobs or 0 for entry in run.metrics) / total


def _of_task(run: History, _base: History | None, task: str) -> float | None:
    return progress(run.summary, task)


def _variance_at(run: History, _base: History | None, at: str) -> float | None:
    if not at:
        return overall(run.summary, "variance")
    if at == "mean":
        return _over_rounds(np.mean, [entry.progress.variance for entry in run.metrics if entry.progress])
    found = [entry.progress.variance for entry in _until(run, at) if entry.progress]
    return found[-1] if found else None


def _step_size(of: Callable[[list[float]], Any]) -> Read:
    """Of each round the sum over tasks."""
    return lambda run, _base, _at: _over_rounds(
        of, [_over_tasks(entry, "step_size") for entry in run.metrics if entry.round]
    )


def _over_rounds(of: Callable[[list[float]], Any], values: list[float]) -> float | None:
    return float(of(values)) if values else None


def _over_tasks(entry: Round, key: str) -> float:
    return sum((getattr(figures, key) or 0.0 for figures in entry.tasks.values()), 0.0)


def _per_round(cost: str) -> Read:
    """A round's cost, or with an accuracy as argument what it took to reach it (None: not reached)."""

    def read(run: History, _base: History | None, at: str) -> float | None:
        spent = list(accumulate(_over_tasks(entry, cost) for entry in run.metrics))
        if not spent:
            return None
        if not at:
            return spent[-1] / max(run.last_round, 1)
        reached = (
            total
            for entry, total in zip(run.metrics, spent)
            if (entry.progress.mean if entry.progress else 0.0) >= float(at)
        )
        return next(reached, None)

    return read


def _after_uploads(run: History, _base: History | None, at: str) -> float | None:
    """Final accuracy, had training ended with so many uploads; None: there were fewer."""
    spent = accumulate(_over_tasks(entry, "uploads") for entry in run.metrics)
    last = next((entry.round for entry, total in zip(run.metrics, spent) if total >= float(at)), None)
    if last is None:
        return None
    end = [entry.progress for entry in run.metrics if last - FINAL_ROUNDS < entry.round <= last]
    return _over_rounds(np.mean, [accuracy.mean for accuracy in end if accuracy])


def _rand_index(run: History, _base: History | None, at: str) -> float | None:
    """At the last grouping up to a round, against the true clusters of a task (`25:mnist`).

    Without a task against those that it matches best: the groups may have been formed by any task's losses.
    """
    last, _, named = at.partition(":")
    grouped = [
        max(known)
        for entry in _until(run, last)
        if (known := _known(entry, "rand_index", [named] if named else run.tasks))
    ]
    return grouped[-1] if grouped else None


def _until(run: History, round: str) -> list[Round]:
    """Up to a round; none of a run that ended before it."""
    return [entry for entry in run.metrics if entry.round <= int(round) <= run.last_round]


def _known(entry: Round, key: str, tasks: list[str]) -> list[float]:
    found = [number(entry.allocation, key, task) for task in tasks]
    return [value for value in found if value is not None]


def _take_up(of: Callable[[list[float]], float]) -> Read:
    def read(run: History, _base: History | None, _at: str) -> float | None:
        taken = (run.summary or {}).get("recruitment", {}).get("take_up", {})
        return of(list(taken.values())) if taken else None

    return read


MEASURES: dict[str, Measure] = {
    "relative": Measure("relative accuracy", "plain", _relative("mean")),
    "relative-minimum": Measure("worst task, relative", "plain", _relative("minimum")),
    "average": Measure("accuracy", "percent", _overall("mean")),
    "minimum": Measure("worst task", "percent", _overall("minimum")),
    "spread": Measure("deviation over tasks", "percent", _task_spread),
    "variance": Measure("variance over tasks", "plain", _variance_at),
    "after": Measure("accuracy", "percent", _after_uploads),
    "task": Measure("accuracy", "percent", _of_task),
    "share": Measure("jobs", "percent", _job_share),
    "step-size": Measure("step size", "plain", _step_size(np.mean)),
    "step-size-deviation": Measure("deviation of the step size", "plain", _step_size(np.std)),
    "uploads": Measure("uploads", "plain", _per_round("uploads")),
    "upload-bytes": Measure("upload", "bytes", _per_round("upload_bytes"), from_curves=False),
    "steps": Measure("gradient steps", "plain", _per_round("gradient_steps")),
    "passes": Measure("forward passes", "plain", _per_round("forward_passes")),
    "memory": Measure("server's extra state", "bytes", _summary("server_bytes"), from_curves=False),
    "rand-index": Measure("Rand index", "plain", _rand_index, from_curves=False),
    "take-up-minimum": Measure("smallest take-up", "plain", _take_up(min), from_curves=False),
    "take-up-difference": Measure(
        "difference of take-up", "plain", _take_up(lambda t: max(t) - min(t)), from_curves=False
    ),
}
COSTS = ("uploads", "upload-bytes", "steps", "passes")


def parse(key: str) -> tuple[Measure, str]:
    name, _, argument = key.partition("@")
    if name not in MEASURES:
        raise FedmuxError(f'there is no measure "{name}"; known: {", ".join(MEASURES)}')
    if name in COSTS and argument:  # curves are rounded: a round off where the target is just met
        return replace(MEASURES[name], from_curves=False), argument
    return MEASURES[name], argument


def title(key: str) -> str:
    measure, argument = parse(key)
    name = key.partition("@")[0]
    if name in COSTS:
        return f"{measure.title} to {100 * float(argument):g} %" if argument else f"{measure.title} a round"
    if name == "task":
        return argument
    if name == "after":
        return f"{measure.title} after {float(argument):,g} uploads"
    if name == "share":
        return f"jobs for {argument}"
    if argument == "mean":
        return f"{measure.title}, mean over rounds"
    if name == "rand-index":
        last, _, task = argument.partition(":")
        return f"{measure.title}, {task or 'best task'}, round {last}"
    return f"{measure.title} at round {argument}" if argument else measure.title
