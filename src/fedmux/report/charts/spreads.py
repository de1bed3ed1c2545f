"""Distributions over clients, as bands of quantiles over rounds: probabilities and accuracies."""

from collections.abc import Callable, Sequence

import altair as alt

from fedmux.report.charts import style, thin
from fedmux.report.charts.lines import span
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs.history import History
from fedmux.runs.rounds import Round
from fedmux.runs.scale import ACCURACY

QUANTILES = ("p10", "p25", "median", "p75", "p90")
PROBABILITY, ON_OWN = "probability to train", "accuracy on own data"
SHARES = (PROBABILITY, ON_OWN)
BANDS = "line: median; bands: middle half and middle 80 % of the clients"


Spread = dict[str, float]  # quantiles over clients


def quantile_rows(
    history: History, tasks: Sequence[str], read: Callable[[Round, str], Spread | None], width: int
) -> Rows:
    """Quantiles of each task in each bin of rounds; `read` gives those of a task in a round."""
    rows = []
    for task in tasks:
        found = [(entry.round, spread) for entry in history.metrics if (spread := read(entry, task))]
        columns = {
            key: thin.thin(((round, spread[key]) for round, spread in found if key in spread), width)
            for key in QUANTILES
        }
        for round in columns["median"]:
            if all(round in column for column in columns.values()):
                values = {key: short(column[round]) for key, column in columns.items()}
                rows.append({"round": round, "task": task, **values})
    return rows


def saturated_rows(metrics: list[Round], width: int) -> Rows:
    """Clients whose probabilities have reached their bound, in each bin of rounds."""
    points = [(entry.round, entry.saturated) for entry in metrics if entry.saturated is not None]
    return [{"round": round, "value": short(value)} for round, value in thin.thin(points, width).items()]


def client_accuracy(history: History) -> Chart | None:
    """How well the models serve the clients, task by task."""
    tasks, width = _fit(history)
    rows = quantile_rows(history, tasks, lambda entry, task: entry.of(task).clients, width)
    if not rows:
        return None
    panels: list[Chart] = []
    titles = {task: history.scales[task].title for task in tasks}
    axes = {task: ON_OWN if title == ACCURACY else title for task, title in titles.items()}
    for what in dict.fromkeys(axes.values()):
        panels += _panels(history, [task for task in tasks if axes[task] == what], rows, what)
    measure = "Accuracy" if history.measure == "accuracy" else "Score"
    return style.joined(panels, f"{measure} at the clients", _notes(history, tasks, width))


def probability(history: History) -> Chart | None:
    """How probabilities to train are spread over clients, and how many clients are at their bound."""
    tasks, width = _fit(history)
    rows = quantile_rows(history, tasks, lambda entry, task: entry.probability.get(task), width)
    saturated = saturated_rows(history.metrics, width)
    if not rows:
        return None
    panels = _panels(history, tasks, rows, PROBABILITY)
    if saturated:
        panels.append(_saturated(history, saturated))
    return style.joined(panels, "Probabilities of the clients", _notes(history, tasks, width))


def _saturated(history: History, rows: Rows) -> Chart:
    most = max(row["value"] for row in rows)
    return (
        alt.Chart(
            style.data(rows),
            width=style.SMALL,
            height=style.LOW,
            title=style.panel_title("saturated clients"),
        )
        .mark_area(line={"color": style.GREY}, color=style.GREY, opacity=0.4, interpolate="step-after")
        .encode(
            x=style.rounds_axis(history.last_round),
            y=alt.Y(
                "value:Q",
                title="clients",
                axis=alt.Axis(tickMinStep=1, format="~d", tickCount=5),
                scale=alt.Scale(domain=[0, max(most, 5)]),
            ),
            tooltip=[
                alt.Tooltip("round:Q", title="round"),
                alt.Tooltip("value:Q", title="saturated clients"),
            ],
        )
    )


def _panels(history: History, tasks: list[str], rows: Rows, what: str) -> list[Chart]:
    ends = [{"value": row[key]} for row in rows if row["task"] in tasks for key in ("p10", "p90")]
    if not ends:
        return []
    limits = span(ends) or (0.0, 1.0)
    within = all(0 <= row["value"] <= 1 for row in ends)
    share = within if what in SHARES else history.scales[tasks[0]].share
    scale = alt.Scale(domain=[min(limits[0], 0.0), limits[1]], nice=5)
    axis = alt.Axis(format=style.PERCENT if share else style.PLAIN, tickCount=5)
    panels: list[Chart] = []
    for task in tasks:
        own = [row for row in rows if row["task"] == task]
        if not own:
            continue
        colour = style.COLOURS[history.tasks.index(task) % len(style.COLOURS)]
        base = alt.Chart(style.data(own), width=style.SMALL, height=style.LOW)
        base = base.encode(x=style.rounds_axis(history.last_round))

        def band(low: str, high: str, opacity: float) -> alt.Chart:
            y = alt.Y(f"{low}:Q", title=what, scale=scale, axis=axis)
            return base.mark_area(color=colour, opacity=opacity).encode(y=y, y2=f"{high}:Q")  # noqa: B023

        form = ".1%" if share else ".4~g"
        line = base.mark_line(color=colour, point="transparent").encode(
            y=alt.Y("median:Q", title=what, scale=scale, axis=axis),
            tooltip=[
                alt.Tooltip("task:N"),
                alt.Tooltip("round:Q"),
                *(alt.Tooltip(f"{key}:Q", format=form) for key in QUANTILES),
            ],
        )
        panels.append(
            alt.layer(band("p10", "p90", 0.2), band("p25", "p75", 0.35), line, title=style.panel_title(task))
        )
    return panels


def _fit(history: History) -> tuple[list[str], int]:
    tasks = history.tasks[: thin.MOST_PANELS]
    return tasks, thin.bin_width(history.last_round, 2 * len(tasks) + 1)  # rows with five values each


def _notes(history: History, tasks: list[str], width: int) -> list[str]:
    cut = thin.cut_note(len(tasks), len(history.tasks), "tasks")
    return [f"{history.label}, seed {history.seed}", BANDS, thin.bins_note(width), cut]
