"""Accuracy over rounds: of the tasks of one run, and of the methods of a comparison."""

from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

Metrics = list[dict[str, Any]]  # of a run, one entry for each round

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000"]


def task_accuracy(metrics: Metrics, title: str) -> alt.Chart:
    """One line for each task of a run."""
    rows = [
        {"round": entry["round"], "accuracy": values["accuracy"], "series": task}
        for entry in metrics
        if "accuracy" in entry
        for task, values in entry["tasks"].items()
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
    lines = _lines(rows, title, "method")
    seeds = max(len(runs) for runs in curves.values())
    band = lines.mark_area(opacity=0.15 if seeds > 1 else 0.0).encode(
        y=alt.Y("low:Q", title="accuracy, mean over tasks"), y2="high:Q"
    )
    return alt.layer(band, lines)


def save(chart: alt.Chart | alt.LayerChart | alt.FacetChart, path: Path) -> None:
    """A PNG at twice the screen's resolution."""
    chart.configure(
        background="white",
        axis=alt.AxisConfig(labelFontSize=12, titleFontSize=13),
        legend=alt.LegendConfig(labelFontSize=12),
    ).save(path, ppi=144)


def _lines(rows: list[dict[str, Any]], title: str, series: str) -> alt.Chart:
    order = list(dict.fromkeys(row["series"] for row in rows))
    return (
        alt.Chart(alt.Data(values=rows), title=title, width=640, height=360)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y(
                "accuracy:Q", title="test accuracy", axis=alt.Axis(format=".0%"), scale=alt.Scale(zero=False)
            ),
            color=alt.Color(
                "series:N", title=series, sort=order, scale=alt.Scale(domain=order, range=COLOURS)
            ),
        )
    )
