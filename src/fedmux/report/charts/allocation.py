"""Who trained what in one run: a map of clients and rounds, shares of the jobs, how even they are."""

import json
import math
from typing import Any

import altair as alt
import numpy as np

from fedmux.population import Floats, Ints
from fedmux.report.charts import style, thin
from fedmux.report.charts.bars import stacked
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs.history import History

SEVERAL = "several"
ALL = "all tasks"
MOST_CLIENTS, MOST_ROUNDS = 120, 200  # rows and columns of the map
CURVE_POINTS = 100


def job_counts(history: History) -> Ints:
    """N x S: how often each client was drawn for each task; processors count one by one."""
    jobs, shape = history.allocation, (history.clients, len(history.tasks))
    place = jobs["client"].astype(np.int64) * shape[1] + jobs["task"]
    counts = np.bincount(place, jobs["count"], shape[0] * shape[1])
    return counts.astype(np.int64).reshape(shape)


def allocation_rows(history: History) -> tuple[Rows, int, int]:
    """A row for each client, most jobs first, or for each part of them; rounds and clients in a cell.

    `task` has an index for each column of rounds: -1 none, S several. In cells of several clients or rounds
    the task with most jobs counts. `jobs` has the number of jobs.
    """
    jobs, tasks = history.allocation, len(history.tasks)
    order = np.argsort(-job_counts(history).sum(1), kind="stable")
    part = thin.parts(len(order), MOST_CLIENTS)
    row_of = np.empty(len(order), np.int64)
    row_of[order] = part
    rounds = int(jobs["round"].max(initial=1))
    width = math.ceil(rounds / MOST_ROUNDS)
    cells = np.zeros((int(part[-1]) + 1, math.ceil(rounds / width), tasks), np.int64)
    column = (jobs["round"].astype(np.int64) - 1) // width
    np.add.at(cells, (row_of[jobs["client"]], column, jobs["task"]), jobs["count"])
    each = math.ceil(len(order) / len(cells))
    most, total = cells.max(2), cells.sum(2)
    ties = (cells == most[:, :, None]).sum(2) > 1
    mixed = ties if each * width > 1 else most < total
    found = np.where(total == 0, -1, np.where(mixed, tasks, cells.argmax(2)))
    rows = []
    for position in range(len(cells)):
        members = order[part == position]
        name = str(members[0]) if len(members) == 1 else f"{len(members)} clients"
        rows.append(
            {
                "row": position,
                "client": name,
                "task": found[position].tolist(),
                "jobs": total[position].tolist(),
            }
        )
    return rows, width, each


def allocation_map(history: History) -> Chart | None:
    """Rounds across, clients down, coloured by task."""
    if not len(history.allocation) or not history.clients:
        return None
    rows, width, each = allocation_rows(history)
    names = [*history.tasks, SEVERAL]
    columns, most = len(rows[0]["task"]), max(max(row["jobs"]) for row in rows)
    chart = (
        alt.Chart(style.data(rows), width=style.WIDTH, height=max(120, min(420, 14 * len(rows))))
        .transform_calculate(column=f"sequence({columns})")
        .transform_flatten(["task", "jobs", "column"])
        .transform_filter("datum.task >= 0")
        .transform_calculate(
            name=f"{json.dumps(names)}[datum.task]",
            first=f"datum.column * {width} + 1",
            begin=f"datum.column * {width} + 0.5",
            end=f"(datum.column + 1) * {width} + 0.5",
            share=f"0.25 + 0.75 * sqrt(datum.jobs / {most})" if each * width > 1 else "1",
        )
        .mark_rect()
        .encode(
            **_map_axes(columns * width, len(rows)),
            **_map_colours(names, [*_task_colours(history), style.GREY]),
            tooltip=[
                alt.Tooltip("client:N", title="client"),
                alt.Tooltip("first:Q", title="round"),
                alt.Tooltip("name:N", title="task"),
                alt.Tooltip("jobs:Q", title="jobs"),
            ],
        )
        .add_params(style.picked("name"))
    )
    notes = [*_of(history), _cell_note(each, width)]
    return chart.properties(title=style.titled("Who trains what", notes))


def _map_axes(rounds: int, rows: int) -> dict[str, Any]:
    return {
        "x": alt.X(
            "begin:Q",
            title="round",
            axis=alt.Axis(tickMinStep=1, format="~d", grid=False),
            scale=alt.Scale(domain=[0.5, rounds + 0.5], nice=False, zero=False),
        ),
        "x2": "end:Q",
        "y": alt.Y(
            "row:O",
            title="clients, most jobs first",
            axis=alt.Axis(labels=False, ticks=False),
            scale=alt.Scale(domain=list(range(rows))),
        ),
    }


def _map_colours(names: list[str], colours: list[str]) -> dict[str, Any]:
    return {
        "color": alt.Color(
            "name:N",
            title="task",
            scale=alt.Scale(domain=names, range=colours),
            sort=names,
            legend=alt.Legend(symbolOpacity=1),
        ),
        "opacity": alt.when(style.picked("name"))
        .then(alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None))
        .otherwise(alt.value(style.FAINT)),
    }


def _cell_note(clients: int, rounds: int) -> str:
    if clients * rounds == 1:
        return ""
    many = [f"{n} {what}" for n, what in ((clients, "clients"), (rounds, "rounds")) if n > 1]
    return f"a cell is {' x '.join(many)}: the task with most jobs, stronger with more jobs"


def share_rows(history: History, width: int) -> Rows:
    """Each task's share of the jobs of a round, or of some rounds; before the first there are none."""
    sums: dict[int, dict[str, float]] = {}
    for entry in history.metrics:
        if entry.round:
            round = thin.middle(entry.round - 1, width) + 1
            own = sums.setdefault(round, dict.fromkeys(history.tasks, 0.0))
            for task in history.tasks:
                own[task] += entry.of(task).jobs or 0
    return [
        {"round": round, "task": task, "share": short(jobs / total), "jobs": jobs}
        for round, own in sums.items()
        if (total := sum(own.values()))
        for task, jobs in own.items()
    ]


def job_shares(history: History) -> Chart | None:
    """Stacked bars: how the jobs of a round are divided among tasks."""
    width = thin.bin_width(history.last_round, len(history.tasks), thin.MOST_BARS)
    rows = share_rows(history, width)
    if not rows:
        return None
    title = style.titled("Jobs of each task", [*_of(history), _bar_note(width)])
    return stacked(
        rows, "share", "task", history.tasks, "share of the jobs", width, ".1%", top=1.0
    ).properties(title=title)


def gini(counts: Floats | Ints) -> float:
    """0: all alike, towards 1: one has everything."""
    values = np.sort(np.asarray(counts, float))
    total = values.sum()
    if not total:
        return 0.0
    ranks = np.arange(1, len(values) + 1)
    return float((2 * ranks - len(values) - 1) @ values / (len(values) * total))


def lorenz_rows(history: History) -> Rows:
    """Points of the Lorenz curve of jobs over the clients that could have had them, per task and in all."""
    counts, able = job_counts(history), history.available
    curves = {ALL: counts.sum(1)[able.any(1)]}
    if len(history.tasks) > 1:
        curves |= {task: counts[able[:, s], s] for s, task in enumerate(history.tasks)}
    rows = []
    for name, own in list(curves.items())[: thin.MOST_SERIES]:
        if own.sum():
            heights = np.concatenate([[0], np.cumsum(np.sort(own))]) / own.sum()
            picked = np.unique(np.linspace(0, len(own), CURVE_POINTS + 1).astype(int))
            curve = f"{name} ({gini(own):.2f})"
            rows += [
                {"curve": curve, "clients": short(k / len(own)), "jobs": short(heights[k])}
                for k in picked.tolist()
            ]
    return rows


def lorenz(history: History) -> Chart | None:
    """How evenly jobs are spread over clients; the diagonal would be even."""
    if not len(history.allocation) or not (rows := lorenz_rows(history)):
        return None
    names = list(dict.fromkeys(row["curve"] for row in rows))
    share, what = alt.Axis(format=style.PERCENT, tickCount=5), "task (Gini coefficient)"
    line = (
        alt.Chart(style.data(rows), width=380, height=340)
        .mark_line(point="transparent")
        .encode(
            x=alt.X("clients:Q", title="share of the clients, fewest jobs first", axis=share),
            y=alt.Y("jobs:Q", title="share of the jobs", axis=share),
            color=style.series("curve", what, names, one=True, symbol="stroke"),
            strokeOpacity=style.fading("curve"),
            tooltip=[
                alt.Tooltip("curve:N", title="task (Gini)"),
                alt.Tooltip("clients:Q", title="clients", format=".1%"),
                alt.Tooltip("jobs:Q", title="jobs", format=".1%"),
            ],
            **style.dashes("curve", what, names),
        )
        .add_params(style.picked("curve"))
    )
    ends = style.data([{"clients": 0, "jobs": 0}, {"clients": 1, "jobs": 1}])
    even = alt.Chart(ends).mark_line(strokeDash=[4, 4], strokeWidth=1, color=style.GREY)
    even = even.encode(x="clients:Q", y="jobs:Q")
    notes = [*_of(history), "dashed: all alike"]
    return alt.layer(even, line).properties(title=style.titled("How evenly clients take part", notes))


def _of(history: History) -> list[str]:
    return [f"{history.label}, seed {history.seed}"]


def _bar_note(width: int) -> str:
    return f"a bar is {width} rounds" if width > 1 else ""


def _task_colours(history: History) -> list[str]:
    return [style.COLOURS[s % len(style.COLOURS)] for s in range(len(history.tasks))]
