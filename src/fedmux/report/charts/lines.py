"""Lines with bands and marks, as every chart over rounds or costs draws them."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from fedmux.report.charts import style
from fedmux.report.charts.style import Rows

ACCURACY, PROGRESS, LOSS, STEP = "test accuracy", "progress", "test loss", "step size"


def lines(
    rows: Rows,
    field: str,
    series: str,
    names: Sequence[str],
    what: str,
    *,
    x: alt.X | None = None,
    domain: tuple[float, float] | None = None,
    small: bool = False,
    marks: Rows | None = None,
    share: bool = False,
) -> alt.LayerChart | alt.FacetChart:
    """Lines coloured by a field, bands where rows have a range, points that answer to the mouse; crosses at
    some of the rows."""
    x = style.rounds_axis() if x is None else x
    size = (style.SMALL, style.LOW) if small else (style.WIDTH, style.HEIGHT)
    form = style.PERCENT if share else value_format(rows, what)
    scale = alt.Scale(domain=list(domain), nice=5) if domain else alt.Scale(zero=False)
    if far_apart(what, domain):
        scale = alt.Scale(domain=list(domain or ()), type="log", nice=False)
    axis = alt.Axis(format=form, tickCount=5)
    base = alt.Chart(style.data(rows), width=size[0], height=size[1])
    colour = style.series(field, series, names, symbol="stroke")
    line = base.mark_line(point="transparent").encode(
        x=x,
        y=alt.Y("value:Q", title=what, axis=axis, scale=scale),
        color=colour,
        strokeOpacity=style.fading(field),  # not opacity, which would show the points
        tooltip=_tooltip(rows[0], what, form),
        **style.dashes(field, series, names),
    )
    layers = [line]
    if what == STEP:  # that of full participation
        one = base.transform_aggregate(lines="count()").mark_rule(strokeDash=[4, 3], strokeWidth=1)
        layers.append(one.encode(y=alt.YDatum(1, title=what)))
    if any("low" in row for row in rows):
        y = alt.Y("low:Q", title=what, axis=axis, scale=scale)  # the same title, since two would be joined
        band = base.mark_area(line=False).encode(
            x=x, y=y, y2="high:Q", color=colour, opacity=style.fading(field, 0.2)
        )
        layers.insert(0, band)
    if marks:
        cross = alt.Chart(style.data(marks)).mark_point(shape="cross", angle=45, size=110, filled=True)
        layers.append(cross.encode(x=x, y=alt.Y("value:Q", title=what, axis=axis, scale=scale), color=colour))
    return alt.layer(*layers)


def span(rows: Rows) -> tuple[float, float] | None:
    """From the smallest to the largest value or end of a band; None if they are the same."""
    low: float = min(row["low"] if "low" in row else row["value"] for row in rows)
    high: float = max(row["high"] if "high" in row else row["value"] for row in rows)
    return (low, high) if low < high else None


def far_apart(what: str, domain: tuple[float, float] | None) -> bool:
    """Whether losses need a logarithmic axis: one that went astray would flatten all others."""
    return what == LOSS and domain is not None and 0 < 10 * domain[0] < domain[1]


def value_format(rows: Rows, what: str) -> str:
    """Per cent for accuracies and progress."""
    share = what.startswith(ACCURACY) and all(0 <= row["value"] <= 1 for row in rows)
    return style.PERCENT if share or what.startswith(PROGRESS) else style.PLAIN


def _tooltip(row: dict[str, Any], what: str, form: str) -> list[alt.Tooltip]:
    known = {
        "label": alt.Tooltip("label:N", title="method"),
        "task": alt.Tooltip("task:N", title="task"),
        "round": alt.Tooltip("round:Q", title="round", format="d"),
        "cost": alt.Tooltip("cost:Q", title="cost", format=",.0f"),
    }
    shown = [tooltip for key, tooltip in known.items() if key in row]
    detailed = ".1%" if form == style.PERCENT else ".4~g"
    shown.append(alt.Tooltip("value:Q", title=what, format=detailed))
    ends = (("low", "lowest seed"), ("high", "highest seed"))
    return shown + [alt.Tooltip(f"{k}:Q", title=t, format=detailed) for k, t in ends if k in row]
