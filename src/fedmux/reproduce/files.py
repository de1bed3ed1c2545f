"""The files of a reproduction: a summary, curves and a table; small enough to keep."""

import csv
import gzip
import io
import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmux.errors import FedmuxError
from fedmux.reproduce.outcome import KeptRun, Outcome, Part
from fedmux.reproduce.tables import markdown
from fedmux.runs.atomic import write_atomically
from fedmux.runs.environment import environment
from fedmux.runs.finals import number, progress
from fedmux.runs.history import History
from fedmux.runs.layout import SUMMARY
from fedmux.runs.reading import read_environment

COLUMNS = ("accuracy", "loss", "jobs", "uploads", "gradient_steps", "forward_passes", "step_size")
DIVERGED = "diverged"  # the round in which a task was paused: a column where there is one


def summary(
    outcome: Outcome, parts: Sequence[Part], also: dict[str, Any], kept: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Everything that a reader of the figures needs to know of them; `kept`: that of the runs of before."""
    runs, before = _all_runs(parts), kept or {"made": {}, "missing": {}}
    beside = Counter(before.get("beside", {}))  # runs that were made for another preset
    beside += Counter(run.preset for _, _, run in runs if isinstance(run, KeptRun) and run.preset)
    absent = {
        name: said or before["missing"].get(name, "")
        for part in parts
        for name, said in part.missing().items()
    }
    made = _together(before["made"], _made([run for _, _, run in runs]))
    return {
        "preset": outcome.preset.name,
        "paper": outcome.preset.paper,
        "complete": not absent,
        "missing": absent,
        **also,
        "made": made if parts else {_machine(environment()): {}},
        **({"beside": dict(beside)} if beside else {}),
        "rows": [
            {
                **({"variant": part.variant} if part.variant else {}),
                "method": label,
                "seed": run.seed,
                "task": task,
                "final_accuracy": progress(run.summary, task),
                **({DIVERGED: run.diverged[task]} if task in run.diverged else {}),
            }
            for part, label, run in runs
            for task in run.tasks
        ],
        "table": outcome.table(),
        "claims": [verdict.table() for verdict in outcome.verdicts],
    }


def _all_runs(parts: Sequence[Part]) -> list[tuple[Part, str, History]]:
    return [
        (part, label, run) for part in parts for label, group in part.runs.items() for run in group.values()
    ]


def _made(runs: Sequence[History]) -> dict[str, Any]:
    """Where, when and how long: the seconds of all runs, and those on the clock while any was at work."""
    places: dict[str, dict[str, Any]] = {}
    times: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        try:
            found = read_environment(run.path)
        except FedmuxError:
            found = None
        if found is None:
            continue
        place = places.setdefault(
            _machine(found), {"from": found["time"], "to": found["time"], "runs": 0, "seconds": 0.0}
        )
        place["from"], place["to"] = min(place["from"], found["time"]), max(place["to"], found["time"])
        place["torch"] = found["packages"]["torch"]
        place["commits"] = sorted({*place.get("commits", []), found.get("commit") or "unknown"})
        place["runs"] += 1
        seconds, start = number(run.summary, "seconds") or 0.0, datetime.fromisoformat(found["time"])
        place["seconds"] = round(place["seconds"] + seconds, 1)
        times.setdefault(_machine(found), []).append((start.timestamp(), start.timestamp() + seconds))
    for name, place in places.items():
        place["clock"] = round(_covered(times[name]), 1)
    return places


def _together(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The records of two batches of runs, merged."""
    both = {**old, **new}
    for machine in old.keys() & new.keys():
        a, b = old[machine], new[machine]
        both[machine] = {
            **b,
            "from": min(a["from"], b["from"]),
            "to": max(a["to"], b["to"]),
            "torch": ", ".join(sorted({*a["torch"].split(", "), b["torch"]})),
            "commits": sorted({*a["commits"], *b["commits"]}),
            **{key: round(a[key] + b[key], 1) for key in ("runs", "seconds", "clock")},
        }
    return both


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    """Length of their union."""
    length, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        length += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return length


def _machine(found: dict[str, Any]) -> str:
    return str(found["gpus"][0]) if found.get("gpus") else f"{found['processor']}, {found['cores']} cores"


def curves(parts: Sequence[Part]) -> bytes:
    """CSV, packed: a line for each run, round and task."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    runs = list(_all_runs(parts))
    columns = [*COLUMNS, DIVERGED] if any(run.diverged for _, _, run in runs) else COLUMNS
    table.writerow(["variant", "method", "seed", "round", "task", *columns])
    for part, label, run in runs:
        for entry in run.metrics:
            for task, figures in entry.tasks.items():
                head = [part.variant or "", label, run.seed, entry.round, task]
                table.writerow([*head, *(_cell(getattr(figures, column)) for column in columns)])
    return gzip.compress(out.getvalue().encode(), 9, mtime=0)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def write(
    folder: Path,
    outcome: Outcome,
    parts: Sequence[Part],
    also: dict[str, Any],
    kept: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Into the folder; returns the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = summary(outcome, parts, also, kept)
    if parts:  # first: lines of runs that the summary does not know do no harm
        write_atomically(folder / "curves.csv.gz", curves(parts))
    write_atomically(folder / "table.md", markdown(outcome).encode())
    write_atomically(folder / SUMMARY, json.dumps(whole, indent=1).encode())
    return whole
