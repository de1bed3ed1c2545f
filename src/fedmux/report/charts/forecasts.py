"""How far a method's forecasts were off, over rounds: norms of updates by a factor, cosines by a difference.

A round shows it of the clients that were drawn, before the method learns from them.
"""

import math
from collections.abc import Callable

from fedmux.report.charts import style, thin
from fedmux.report.charts.lines import lines, span
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs.finals import number
from fedmux.runs.history import History
from fedmux.runs.rounds import Round

MOST_POINTS = 30  # of a line: a round has few jobs of a task, so its error alone says little
NORMS, COSINES = "off by a factor of", "off by"


def error_rows(history: History, what: str, tasks: list[str], width: int) -> Rows:
    """The error of "norm" (a factor, 1: exact) or "cosine" for each task in each bin of rounds."""
    as_shown: Callable[[float], float] = math.exp if what == "norm" else float
    rows = []
    for task in tasks:
        place = history.tasks.index(task)
        points = [
            (entry.round, error)
            for entry in history.metrics
            if (error := _error(entry, what, place)) is not None
        ]
        rows += [
            {"round": round, "task": task, "value": short(as_shown(error))}
            for round, error in thin.thin(points, width).items()
        ]
    return rows


def _error(entry: Round, what: str, place: int) -> float | None:
    """Of a task by its place; None if the round has none, or one that no forecast has."""
    errors = entry.allocation.get("forecast_error")
    values = errors.get(what) if isinstance(errors, dict) else None
    if not isinstance(values, list) or place >= len(values):
        return None
    found = number(values[place])
    return found if found is not None and 0 <= found < 100 else None


def forecast_error(history: History) -> Chart | None:
    """Norms and cosines side by side, a line for each task."""
    tasks = history.tasks[: thin.MOST_SERIES]
    width = thin.bin_width(history.last_round, 2 * len(tasks), MOST_POINTS)
    panels: list[Chart] = []
    for what, title in (("norm", NORMS), ("cosine", COSINES)):
        rows = error_rows(history, what, tasks, width)
        if rows:
            exact = 1.0 if what == "norm" else 0.0
            ends = span([*rows, {"value": exact}])
            axis = style.rounds_axis(history.last_round)
            panel = lines(rows, "task", "task", tasks, title, x=axis, domain=ends, small=True)
            panels.append(panel.properties(title=style.panel_title(what + "s")))
    if not panels:
        return None
    panels[0] = panels[0].add_params(style.picked("task"))
    notes = [
        f"{history.label}, seed {history.seed}",
        thin.bins_note(width),
        thin.cut_note(len(tasks), len(history.tasks), "tasks"),
    ]
    return style.joined(panels, "Error of the forecasts", notes)
