"""What pages say of runs: figures as words, rows of tables."""

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from fedmux.report.charts import CHARTS
from fedmux.runs.history import History
from fedmux.runs.rounds import Failure, Round

MOST_FAILURES = 50  # of a run that are shown, the newest
MOST_DIFFERENCES = 60  # keys of configurations

NONE = "-"


def address(key: str) -> str:
    """A path below the folder as a part of a URL."""
    return quote(os.fsencode(key))


def query(keys: Sequence[str]) -> str:
    return "&".join(f"run={quote(os.fsencode(key), safe='')}" for key in keys)


def percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


def count(value: float) -> str:
    return f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def newest(history: History, task: str, figure: str) -> float | None:
    """A task's newest figure."""
    found = (getattr(entry.of(task), figure) for entry in reversed(history.metrics))
    return next((value for value in found if value is not None), None)


def total(history: History, task: str, figure: str) -> int:
    return sum(getattr(entry.of(task), figure) or 0 for entry in history.metrics)


def tasks(history: History) -> list[dict[str, str]]:
    last, diverged = history.metrics[-1] if history.metrics else Round(0), history.diverged
    return [
        {
            "name": task + (f" (diverged in round {diverged[task]})" if task in diverged else ""),
            "metric": history.scales[task].name,
            "score": history.scales[task].show(history.score(task)),
            "loss": NONE if (loss := newest(history, task, "loss")) is None else f"{loss:.4g}",
            "jobs": count(last.of(task).jobs or 0),
            "total": count(total(history, task, "jobs")),
            "uploads": count(total(history, task, "uploads")),
        }
        for task in history.tasks
    ]


def facts(history: History) -> dict[str, str]:
    """The figures at the top of a run's page."""
    seconds = history.metrics[-1].seconds if history.metrics else None
    trained = max(history.last_round, 1)
    return {
        "round": f"{history.last_round} of {history.rounds}",
        history.measure: percent(history.overall()),
        "worst task": percent(history.overall("minimum")),
        "uploads": count(sum(total(history, task, "uploads") for task in history.tasks)),
        "time": duration(seconds),
        "time of a round": duration(None if seconds is None else seconds / trained),
    }


def side_by_side(histories: Sequence[History], states: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Rows of a table whose columns are runs."""
    rows = [("state", list(states)), ("method", [history.method or NONE for history in histories])]
    rows.append(("seed", [str(history.seed) for history in histories]))
    columns = [facts(history) for history in histories]
    shown = dict.fromkeys(name for column in columns for name in column)
    rows += [(name, [column.get(name, NONE) for column in columns]) for name in shown]
    names = dict.fromkeys(task for history in histories for task in history.tasks)
    for task in names:
        scale = next(history.scales[task] for history in histories if task in history.scales)
        scores = [history.score(task) if task in history.scales else None for history in histories]
        rows.append((f"{scale.title} of {task}", [scale.show(score, unit=False) for score in scores]))
    return rows


def differences(histories: Sequence[History]) -> list[tuple[str, list[str]]]:
    """Keys of the configurations that are not the same everywhere."""
    flat = [dict(_flat("", history.table)) for history in histories]
    rows = []
    for key in dict.fromkeys(key for table in flat for key in table):
        values = [table.get(key, NONE) for table in flat]
        if len(set(values)) > 1:
            rows.append((key, values))
    return rows[:MOST_DIFFERENCES]


def _flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    """Leaves of nested tables, by dotted keys; entries of lists of tables by name or place."""
    if isinstance(value, dict):
        inside = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        inside = [(str(part.get("name", place)), part) for place, part in enumerate(value)]
    else:
        return [(prefix, str(value))]
    return [leaf for key, part in inside for leaf in _flat(f"{prefix}.{key}" if prefix else key, part)]


def failures(history: History) -> tuple[list[dict[str, str]], list[tuple[str, int]]]:
    """The newest failures, and how many of each kind there were; jobs that were dropped among them."""
    shown: list[dict[str, str]] = []
    kinds: Counter[str] = Counter()
    for entry in reversed(history.metrics):
        for failure in entry.failures:
            kinds[failure.kind or "unknown"] += 1
            if len(shown) < MOST_FAILURES:
                shown.append({"round": str(entry.round), **_words(failure)})
        if entry.dropped:
            kinds["dropped"] += entry.dropped
    return shown, kinds.most_common()


def _words(failure: Failure) -> dict[str, str]:
    return {key: getattr(failure, key) or NONE for key in ("client", "task", "phase", "reason")}


def kinds_for(histories: Sequence[History]) -> list[dict[str, str]]:
    """The charts that these runs may have, as the page names them."""
    return [
        {"key": kind.key, "title": kind.called(histories), "caption": kind.explained(histories)}
        for kind in CHARTS
        if kind.several or len(histories) == 1
    ]
