"""Whether a file of a run folder can be what a run wrote; each check gives one line, or None.

Only what readers rely on is checked: what a later version adds, or an older one did not write, is no damage.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmux.runs.layout import ALLOCATION
from fedmux.runs.rounds import Round, figure

COUNT, NUMBER, TEXT, TABLE = "a whole number", "a finite number", "a text", "a table"

# What a summary must hold, by dotted keys; * stands for every key of a table.
FIGURES = {
    "rounds": COUNT,
    "seconds": NUMBER,
    "totals.*": NUMBER,
}
SHOWN = {  # besides, where it is shown by itself
    "name": TEXT,
    "method": TEXT,
    "seed": COUNT,
    "final_rounds": COUNT,
    "rounds_to": TABLE,
    "tasks.*.last_loss": NUMBER,
    "tasks.*.rounds_to": TABLE,
}


def summary_problem(summary: Mapping[str, Any], shown: bool = True) -> str | None:
    """`shown`: it must also have what only its own table shows."""
    known = [(keys.split("."), kind) for keys, kind in (FIGURES | (SHOWN if shown else {})).items()]
    for keys, kind in [*known, *_scores(summary)]:
        if problem := _odd(summary, keys, kind):
            return problem
    diverged = summary.get("diverged", {})
    whole = isinstance(diverged, dict) and all(
        isinstance(found, dict) and {"round", "reason", "model"} <= found.keys()
        for found in diverged.values()
    )
    return None if whole else "diverged is no table of tasks"


def _scores(summary: Mapping[str, Any]) -> list[tuple[list[str], str]]:
    """The final scores that a summary must hold, and figures over tasks if each of them has a target.

    By lists of keys, since a task's name may have dots.
    """
    tasks = summary.get("tasks")
    if not isinstance(tasks, dict) or not tasks:
        return [(["tasks", "*"], TABLE)]
    unlike = {name for name, found in tasks.items() if isinstance(found, dict) and "metric" in found}
    wanted = [["tasks", name, "score" if name in unlike else "accuracy"] for name in tasks]
    measure = "progress" if "progress" in summary else "accuracy"
    if measure in summary or not unlike:
        wanted += [[measure, "mean"], [measure, "minimum"]]
    return [(keys, NUMBER) for keys in wanted]


def _odd(table: Any, keys: list[str], kind: str, above: str = "") -> str | None:
    """What is wrong with the value under these keys."""
    if not keys:
        return None if _is(table, kind) else f"{above} is not {kind}"
    if not isinstance(table, dict) or (keys[0] == "*" and not table):
        return f"{above} is not {TABLE} of them"
    for key in table if keys[0] == "*" else keys[:1]:
        name = f"{above}.{key}" if above else str(key)
        if key not in table:
            return f"{name} is missing"
        if problem := _odd(table[key], keys[1:], kind, name):
            return problem
    return None


def _is(value: Any, kind: str) -> bool:
    if kind == TEXT:
        return isinstance(value, str)
    if kind == TABLE:
        return isinstance(value, dict) and all(count is None or _is(count, COUNT) for count in value.values())
    return figure(value) is not None and (kind == NUMBER or isinstance(value, int))


def table_problem(table: Mapping[str, Any]) -> str | None:
    """Of a resolved configuration."""
    rounds, seed, method = table.get("rounds"), table.get("seed"), table.get("method")
    if not isinstance(rounds, int) or rounds < 1:
        return "rounds is not a whole number above 0"
    if not isinstance(seed, int):
        return "seed is not a whole number"
    if not isinstance(method.get("name") if isinstance(method, dict) else method, str):
        return "method has no name"
    tasks = table.get("task")
    named = isinstance(tasks, list) and all(
        isinstance(task, dict) and isinstance(task.get("name"), str) for task in tasks
    )
    return None if named and tasks else "task is not a list of tasks with names"


def jobs_problem(jobs: np.ndarray, tasks: int, rounds: int) -> str | None:
    """Of records of dtype ALLOCATION."""
    possible = (jobs["task"] < tasks) & (jobs["round"] >= 1) & (jobs["round"] <= rounds)
    possible &= (jobs["count"] > 0) & np.isfinite(jobs["probability"])
    possible[1:] &= jobs["round"][1:] >= jobs["round"][:-1]
    if possible.all():
        return None
    return f"record {int(np.argmin(possible)) + 1} is not a job of this run"


def too_few_rounds(file: Path, rounds: Sequence[Round], summary: Mapping[str, Any] | None) -> str | None:
    """Of the log of a finished run, which must not end before the run did."""
    trained = figure(summary.get("rounds")) if summary else None
    last = rounds[-1].round if rounds else -1
    if trained is None or last >= trained:
        return None
    if not file.exists():
        return "is missing"
    return f"ends after round {last} of {trained:g}" if rounds else "is empty"


def used_updates(summary: Mapping[str, Any] | None) -> int | None:
    """How many updates a finished run used; None if that is not known."""
    totals = summary.get("totals") if summary else None
    used = figure(totals.get("uploads")) if isinstance(totals, dict) else None
    return None if used is None else int(used)


def too_few_jobs(file: Path, used: int, finished: bool) -> str | None:
    """Of the record of jobs: each update that was used has its own, and a finished run wrote all of it."""
    try:
        jobs, rest = divmod(file.stat().st_size, ALLOCATION.itemsize)
    except OSError:
        return "is missing"
    if jobs < used:
        return f"holds {jobs} jobs of at least {used}"
    return "ends within a record" if rest and finished else None


def model_problem(file: Path) -> str | None:
    """Of a file of weights, by its size and its header."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(0)
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length < size else {}
        ends = [part["data_offsets"][1] for name, part in header.items() if name != "__metadata__"]
        whole = size > 8 and size == 8 + length + max(ends, default=0)
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return "cannot be read"
    return None if whole else "is damaged or cut"
