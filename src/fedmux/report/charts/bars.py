"""Bars over rounds, divided by a series: jobs by task, seconds by phase, failures by kind."""

import json
from collections.abc import Sequence

import altair as alt

from fedmux.report.charts import style
from fedmux.report.charts.style import Rows


def stacked(
    rows: Rows,
    field: str,
    series: str,
    names: Sequence[str],
    what: str,
    width: int,
    form: str,
    *,
    top: float | None = None,
    ends: tuple[float, float] | None = None,
    height: int = style.HEIGHT,
) -> alt.Chart:
    """Each bar is `width` rounds around its rows' round; `top` ends the axis, `ends` are those of rounds."""
    before = (width - 1) // 2 + 0.5
    rounds = [row["round"] for row in rows]
    first, last = ends or (min(rounds) - before, max(rounds) - before + width)
    scale = alt.Scale(domain=[0, top], nice=False) if top else alt.Undefined
    axis = alt.Axis(format=style.PERCENT if form.endswith("%") else style.PLAIN, tickCount=5)
    chart = (
        alt.Chart(style.data(rows), width=style.WIDTH, height=height)
        .transform_calculate(
            begin=f"datum.round - {before}",
            end=f"datum.round - {before} + {width}",
            place=f"indexof({json.dumps(list(names))}, datum.{series})",
        )
        .mark_bar(clip=True, binSpacing=1 if (last - first) / width <= 60 else 0)
        .encode(
            x=alt.X(
                "begin:Q",
                title="round",
                bin="binned",
                scale=alt.Scale(domain=[first, last], nice=False, zero=False),
                axis=alt.Axis(tickMinStep=1, format="~d", grid=False),
            ),
            x2="end:Q",
            y=alt.Y(f"{field}:Q", title=what, stack="zero", axis=axis, scale=scale),
            color=style.series(series, series, names),
            opacity=style.fading(series) if len(names) > 1 else alt.Undefined,
            order=alt.Order("place:Q"),
            tooltip=[
                alt.Tooltip("round:Q", title="round"),
                alt.Tooltip(f"{series}:N", title=series),
                alt.Tooltip(f"{field}:Q", title=what, format=form),
            ],
        )
    )
    return chart.add_params(style.picked(series)) if len(names) > 1 else chart
