"""The charts: accuracy of tasks and of methods, probabilities and variances, auctions."""

from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from fedmux.errors import FedmuxError
from fedmux.explain import Explanation

Metrics = list[dict[str, Any]]  # of a run, one entry for each round

DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
MOST_BARS = 200  # clients drawn side by side; more are thinned out evenly
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000"]


def task_accuracy(metrics: Metrics, title: str) -> alt.Chart:
    """One line for each task of a run."""
    rows = [
        {"round": entry["round"], "accuracy": values["accuracy"], "series": task}
        for entry in metrics
        if "accuracy" in entry
        for task, values in entry["tasks"].items()
        if "accuracy" in values
    ]
    return _lines(rows, title, "task")


def method_accuracy(curves: dict[str, list[Metrics]], title: str) -> alt.LayerChart | alt.FacetChart:
    """One line for each label: mean over tasks and seeds; the band is the range over seeds."""
    rows = []
    for label, runs in curves.items():
        by_round: dict[int, list[float]] = {}
        for metrics in runs:
            for entry in metrics:
                if "accuracy" in entry:
                    by_round.setdefault(entry["round"], []).append(entry["accuracy"]["mean"])
        for number, values in by_round.items():
            rows.append(
                {
                    "round": number,
                    "accuracy": float(np.mean(values)),
                    "low": min(values),
                    "high": max(values),
                    "series": label,
                }
            )
    what = "test accuracy, mean over tasks"
    seeds = max(len(runs) for runs in curves.values())
    lines = _lines(rows, title + ("; band: range over seeds" if seeds > 1 else ""), "method", what)
    band = lines.mark_area(opacity=0.15 if seeds > 1 else 0.0).encode(
        y=alt.Y("low:Q", title=what),
        y2="high:Q",  # the same title, since two would be joined
    )
    return alt.layer(band, lines)


def check_picture(path: Path) -> None:
    """Refuse a name that no PNG can have, before any work is done for it."""
    if path.suffix.lower() != ".png":
        raise FedmuxError(f"{path}: pictures are written as PNG; name it {path.with_suffix('.png').name}")
    if not path.absolute().parent.is_dir():
        raise FedmuxError(f"{path}: there is no folder {path.parent}; make it first")


def save(chart: alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart, path: Path) -> None:
    """A PNG at twice the screen's resolution."""
    check_picture(path)
    chart.configure(
        background="white",
        axis=alt.AxisConfig(labelFontSize=12, titleFontSize=13),
        legend=alt.LegendConfig(labelFontSize=12),
    ).save(path, ppi=144)


def _lines(rows: list[dict[str, Any]], title: str, series: str, what: str = "test accuracy") -> alt.Chart:
    order = list(dict.fromkeys(row["series"] for row in rows))
    return (
        alt.Chart(alt.Data(values=rows), title=title, width=640, height=360)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1, format="d")),
            y=alt.Y("accuracy:Q", title=what, axis=alt.Axis(format=".0%"), scale=alt.Scale(zero=False)),
            color=_series("series", series, order),
            **({"strokeDash": _dashes("series", order)} if len(order) > len(COLOURS) else {}),
        )
    )


def probabilities(explanation: Explanation) -> alt.HConcatChart:
    """Who is likely to train, by task, against Random; and what that does to the variance."""
    tasks = explanation.tasks
    order = np.argsort(-explanation.probability.sum(1), kind="stable")
    shown = order[np.linspace(0, len(order) - 1, min(len(order), MOST_BARS)).astype(int)]
    bars = [
        {"rank": rank, "task": task, "probability": float(explanation.probability[i, s])}
        for rank, i in enumerate(shown.tolist())
        for s, task in enumerate(tasks)
    ]
    baseline = float(explanation.random.sum(1).max())
    title = f"{explanation.method}: probability that a processor trains, by client"
    if len(shown) < len(order):
        title += f" ({len(shown)} of {len(order)})"
    who = (
        alt.Chart(alt.Data(values=bars), title=title, width=560, height=320)
        .mark_bar()
        .encode(
            x=alt.X("rank:O", title="clients, most likely first", axis=alt.Axis(labels=False, ticks=False)),
            y=alt.Y("sum(probability):Q", title="probability"),
            color=_series("task", "task", tasks),
        )
    )
    line = (
        alt.Chart(alt.Data(values=[{"y": baseline, "text": f"Random {baseline:.3f}"}]))
        .mark_rule(strokeDash=[6, 4], strokeWidth=2)
        .encode(y="y:Q")
    )
    label = line.mark_text(align="right", x="width", dx=-4, dy=-8, fontSize=12).encode(text="text:N")
    names = ["Random", "optimum"]
    if explanation.method != "random":
        names.insert(0, explanation.method)
    values = {
        explanation.method: explanation.variance,
        "Random": explanation.random_variance,
        "optimum": explanation.least_variance,
    }
    spread = [
        {"task": task, "series": name, "variance": float(values[name][s])}
        for name in names
        for s, task in enumerate(tasks)
        if np.isfinite(values[name][s])
    ]
    how_much = (
        alt.Chart(alt.Data(values=spread), title="variance of the step", width=280, height=320)
        .mark_bar()
        .encode(
            x=alt.X("task:N", title="task", sort=tasks, axis=alt.Axis(labelAngle=-30)),
            xOffset=alt.XOffset("series:N", sort=names),
            y=alt.Y("variance:Q", title="variance / learning rate squared"),
            color=_series("series", "probabilities", names),
        )
    )
    return alt.hconcat(alt.layer(who, line, label), how_much).resolve_scale(color="independent")


def _series(field: str, title: str, names: list[str]) -> alt.Color:
    scale = alt.Scale(domain=names, range=COLOURS)
    return alt.Color(f"{field}:N", title=title, sort=names, scale=scale, legend=alt.Legend(symbolOpacity=1))


def take_up(rows: list[dict[str, Any]]) -> alt.HConcatChart:
    """Auctions compared: the least take-up over tasks, and how far tasks are apart, over budgets."""
    rows = [row for row in rows if row["mechanism"] != "budget-fair-as-published"]  # has the same winners
    names = list(dict.fromkeys(row["mechanism"] for row in rows))

    def panel(field: str, title: str) -> alt.Chart:
        return (
            alt.Chart(alt.Data(values=rows), title=title, width=380, height=300)
            .mark_line(strokeWidth=2)
            .encode(
                x=alt.X("budget:Q", title="budget"),
                y=alt.Y(f"{field}:Q", title="users"),
                color=_series("mechanism", "mechanism", names),
            )
        )

    return alt.hconcat(panel("minimum", "smallest take-up"), panel("difference", "largest minus smallest"))


def _dashes(field: str, names: list[str]) -> alt.StrokeDash:
    """Colours repeat after eight series; the dash tells the rounds of colours apart."""
    styles = [DASHES[position // len(COLOURS) % len(DASHES)] for position in range(len(names))]
    return alt.StrokeDash(f"{field}:N", sort=names, scale=alt.Scale(domain=names, range=styles), legend=None)
