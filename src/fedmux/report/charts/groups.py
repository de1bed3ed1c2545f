"""Groups of alike clients (mmfl-group): the plane of their losses, by group and by true cluster."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from fedmux.report.charts import style
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs.finals import number
from fedmux.runs.history import History
from fedmux.runs.rounds import Round

MOST_STEPS = 3  # C-steps side by side
MOST_POINTS = 400  # clients in a panel


def grouped(history: History, rounds: Sequence[int] = ()) -> list[Round]:
    """Rounds in which clients were grouped and their plane was recorded.

    Those in force at `rounds`; without any, thinned out evenly.
    """
    found = [
        entry
        for entry in history.metrics
        if all(isinstance(entry.allocation.get(name), list) for name in ("groups", "plane"))
    ]
    if rounds:
        in_force = [[entry for entry in found if entry.round <= last][-1:] for last in rounds]
        return [entry for entries in in_force for entry in entries]
    places = np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST_STEPS)).astype(int))
    return [found[place] for place in places] if found else []


def plane_rows(entry: Round, cluster: np.ndarray | None) -> Rows:
    """Clients with their place, group and true cluster (None: unknown)."""
    groups, plane = entry.allocation["groups"], entry.allocation["plane"]
    rows = []
    for client, (group, point) in enumerate(zip(groups, plane)):
        if isinstance(point, list) and len(point) == 2 and all(number(value) is not None for value in point):
            known = cluster is not None and client < len(cluster) and cluster[client] >= 0
            row: dict[str, Any] = {"client": client, "x": short(point[0]), "y": short(point[1])}
            row["group"] = str(group) if isinstance(group, int) and group >= 0 else "none"
            rows.append({**row, "cluster": str(cluster[client]) if known and cluster is not None else "none"})
    places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_POINTS)).astype(int))
    return [rows[place] for place in places] if rows else []


def true_clusters(history: History, of: str | None = None) -> tuple[np.ndarray | None, str | None]:
    """The clusters of one task, and its name if they differ from task to task: `of`, or the best matched."""
    clusters = history.population.get("cluster")
    if clusters is None or clusters.ndim != 2 or clusters.shape[1] != len(history.tasks):
        return None, None
    having = [s for s in range(clusters.shape[1]) if (clusters[:, s] >= 0).any()]
    if not having:
        return None, None
    first = clusters[:, having[0]]
    both = [(first >= 0) & (clusters[:, s] >= 0) for s in having]
    if all((first[seen] == clusters[seen, s]).all() for s, seen in zip(having, both)):
        return clusters[:, having].max(1), None  # a client that lacks one task is known from another
    if of in history.tasks and history.tasks.index(of) in having:
        return clusters[:, history.tasks.index(of)], of
    steps = grouped(history)
    index = (
        [number(steps[-1].allocation, "rand_index", history.tasks[s]) or 0.0 for s in having] if steps else []
    )
    best = having[int(np.argmax(index))] if index else having[0]
    return clusters[:, best], history.tasks[best]


def plane(history: History, rounds: Sequence[int] = (), of: str | None = None) -> Chart | None:
    """Above by group, below by true cluster (of a task, if it is named), at a few C-steps."""
    steps = grouped(history, rounds)
    cluster, task = true_clusters(history, of)
    drawn = [(entry, plane_rows(entry, cluster)) for entry in steps]
    drawn = [(entry, rows) for entry, rows in drawn if rows]
    if not drawn:
        return None
    kinds = [("group", "group")] + ([("cluster", "true cluster")] if cluster is not None else [])
    lines = []
    for kind, title in kinds:
        names = sorted({row[kind] for _, rows in drawn for row in rows}, key=lambda name: (len(name), name))
        panels = [
            _panel(entry, rows, kind, title, names, [task] if task else history.tasks)
            for entry, rows in drawn
        ]
        panels[0] = panels[0].add_params(style.picked(kind))
        lines.append(alt.hconcat(*panels, spacing=24).resolve_scale(color="shared", shape="shared"))
    clients = max(len(rows) for _, rows in drawn)
    everyone = sum(point is not None for point in drawn[-1][0].allocation["plane"])
    notes = [
        f"{history.label}, seed {history.seed}",
        "first two principal components of the losses",
        f'true clusters of "{task}"' if task else "",
        f"{clients} of {everyone} clients" if clients < everyone else "",
    ]
    heading = style.titled("Groups of alike clients", notes)
    return alt.vconcat(*lines, title=heading, spacing=24).resolve_scale(
        color="independent", shape="independent"
    )


def _panel(entry: Round, rows: Rows, kind: str, title: str, names: list[str], tasks: list[str]) -> alt.Chart:
    name = f"round {entry.round}"
    index = [number(entry.allocation, "rand_index", task) for task in tasks]
    known = [value for value in index if value is not None]
    if kind == "cluster" and known:
        name += f", Rand index {max(known):.2f}"
    shapes = ["circle", "square", "triangle-up", "cross", "diamond", "triangle-down"]
    legend = alt.Legend(title=title, symbolOpacity=1)
    return (
        alt.Chart(style.data(rows), width=style.SMALL, height=style.LOW)
        .mark_point(filled=True, size=45)
        .encode(
            x=alt.X("x:Q", title=None, axis=alt.Axis(labels=False, ticks=False), scale=alt.Scale(zero=False)),
            y=alt.Y("y:Q", title=None, axis=alt.Axis(labels=False, ticks=False), scale=alt.Scale(zero=False)),
            color=style.series(kind, title, names).legend(legend),
            shape=alt.Shape(
                f"{kind}:N",
                sort=names,
                scale=alt.Scale(domain=names, range=[shapes[i % len(shapes)] for i in range(len(names))]),
                legend=legend,
            ),
            opacity=style.fading(kind, 0.85),
            tooltip=[
                alt.Tooltip("client:Q"),
                alt.Tooltip("group:N"),
                alt.Tooltip("cluster:N", title="true cluster"),
            ],
        )
        .properties(title=style.panel_title(name))
    )
