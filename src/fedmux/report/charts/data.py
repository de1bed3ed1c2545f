"""How a run's data are divided over clients: labels of each client, or how many points it has."""

import altair as alt
import numpy as np

from fedmux.population import Floats, Ints
from fedmux.report.charts import style, thin
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs.history import History

MOST_CELLS = 30_000  # of all maps together
MOST_CLIENTS = 120  # columns of a map
MOST_LABELS = 100  # rows of a map
WIDTH = 270  # of a map


def label_rows(counts: Ints, most: int) -> tuple[Rows, int]:
    """A row for each label with its share of each client's points; and the clients in a column.

    Clients without points are left out, the others sorted by the label they have most of, then by its share.
    """
    having = counts[counts.sum(1) > 0].astype(float)
    shares = having / having.sum(1, keepdims=True)
    order = np.lexsort((-shares.max(1), shares.argmax(1)))
    part = thin.parts(len(order), most)
    means, points = thin.part_means(shares[order], part), thin.part_means(having[order], part)
    rows = [
        {"label": label, "share": _rounded(means[:, label], 2), "points": _rounded(points[:, label], 1)}
        for label in range(counts.shape[1])
    ]
    return rows, int(np.ceil(len(order) / len(means)))


def size_rows(sizes: Ints) -> Rows:
    """Points of each client that has some, most first, or means of neighbours."""
    ordered = -np.sort(-sizes[sizes > 0])
    means = thin.part_means(ordered.astype(float), thin.parts(len(ordered), thin.MOST_POINTS))
    share = np.linspace(0, 1, len(means))
    return [
        {"rank": short(rank), "points": short(value)} for rank, value in zip(share.tolist(), means.tolist())
    ]


def data(history: History) -> Chart | None:
    """A map of labels and clients for each task; without labels the points of each client."""
    tasks = history.tasks[: thin.MOST_PANELS]
    labels = {task: counts for task in tasks if (counts := _labels(history, task)) is not None}
    notes = [f"{history.name}, seed {history.seed}", thin.cut_note(len(tasks), len(history.tasks), "tasks")]
    if labels:
        classes = sum(counts.shape[1] for counts in labels.values())
        most = max(20, min(MOST_CLIENTS, MOST_CELLS // classes))
        made = [(task, *label_rows(counts, most)) for task, counts in labels.items()]
        top = max(max(row["share"]) for _, rows, _ in made for row in rows)
        panels = [_map(task, rows, top) for task, rows, _ in made]
        each = max(each for _, _, each in made)
        notes.append(f"a column is the mean of {each} clients" if each > 1 else "")
        return style.joined(panels, "Labels of the clients", notes)
    sizes = history.population.get("sizes")
    if sizes is None or sizes.shape != (history.clients, len(history.tasks)):
        return None
    panels = [_sizes(task, size_rows(sizes[:, s])) for s, task in enumerate(tasks) if (sizes[:, s] > 0).any()]
    return style.joined(panels, "Data of the clients", notes) if panels else None


def _labels(history: History, task: str) -> Ints | None:
    counts = history.population.get(f"labels.{task}")
    usable = counts is not None and counts.ndim == 2 and counts.dtype.kind in "iu" and counts.sum() > 0
    return counts[:, :MOST_LABELS] if usable and counts is not None else None


def _map(task: str, rows: Rows, top: float) -> Chart:
    columns = len(rows[0]["share"])
    return (
        alt.Chart(
            style.data(rows),
            width=WIDTH,
            height=max(90, min(260, 16 * len(rows))),
            title=style.panel_title(task, WIDTH),
        )
        .transform_calculate(column=f"sequence({columns})")
        .transform_flatten(["share", "points", "column"])
        .transform_filter("datum.share > 0")
        .mark_rect(color=style.COLOURS[0])
        .encode(
            x=alt.X(
                "column:O",
                title="clients, by their main label",
                axis=alt.Axis(labels=False, ticks=False),
                scale=alt.Scale(domain=list(range(columns)), padding=0),
            ),
            y=alt.Y("label:O", title="label", scale=alt.Scale(padding=0)),
            opacity=alt.Opacity(
                "share:Q",
                title="share of a client's points",
                scale=alt.Scale(domain=[0, top], range=[0.06, 1]),
                legend=alt.Legend(
                    format=style.PERCENT,
                    symbolFillColor=style.COLOURS[0],
                    symbolType="square",
                    symbolStrokeWidth=0,
                ),
            ),
            tooltip=[
                alt.Tooltip("label:O"),
                alt.Tooltip("share:Q", title="share", format=".0%"),
                alt.Tooltip("points:Q"),
            ],
        )
    )


def _sizes(task: str, rows: Rows) -> Chart:
    return (
        alt.Chart(
            style.data(rows), width=style.SMALL, height=style.LOW, title=style.panel_title(task, style.SMALL)
        )
        .mark_area(color=style.COLOURS[0], opacity=0.7, line={"color": style.COLOURS[0]})
        .encode(
            x=alt.X(
                "rank:Q",
                title="clients, most data first",
                axis=alt.Axis(format=style.PERCENT, grid=False, tickCount=4),
            ),
            y=alt.Y("points:Q", title="points of a client", axis=alt.Axis(tickCount=5, format=".3~s")),
            tooltip=[alt.Tooltip("rank:Q", format=".0%"), alt.Tooltip("points:Q")],
        )
    )


def _rounded(values: Floats, digits: int) -> list[float]:
    return [int(value) if value == int(value) else value for value in np.round(values, digits).tolist()]
