"""A paper's figures beside ours."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from fedmux.report.charts import style
from fedmux.report.charts.style import Chart, Rows

WIDTH, MOST_ROWS = 300, 60
APART = 6  # pixels between ours and the paper's


def beside(rows: Rows, titles: Sequence[tuple[str, str, bool]], title: str, theirs: str) -> Chart | None:
    """A panel for each measure (key, title, in per cent): ours with its deviation over seeds, the paper's.

    Rows have `row`, `measure`, `source` ("ours", or whose the figures are), `value`, `low` and `high`.
    """
    names = list(dict.fromkeys(row["row"] for row in rows))[:MOST_ROWS]
    panels: list[Chart] = []
    for key, what, percent in titles:
        shown = [row for row in rows if row["measure"] == key and row["row"] in names]
        if shown:
            panels.append(_panel(shown, names, what, percent, ["ours", theirs], labels=not panels))
    if not panels:
        return None
    spread = any(row["low"] < row["high"] for row in rows)
    notes = ["line: one deviation, ours over seeds"] if spread else []
    return style.joined(panels, title, notes, columns=len(panels))


def _panel(
    rows: Rows, names: Sequence[str], what: str, percent: bool, sources: Sequence[str], labels: bool
) -> Chart:
    sources = [source for source in sources if any(row["source"] == source for row in rows)]
    form = style.PERCENT if percent else style.PLAIN
    axis = alt.Axis(format=form, tickCount=6, grid=True, labelFlush=False)
    base = alt.Chart(style.data(rows), width=WIDTH, height=alt.Step(22)).encode(
        y=alt.Y(
            "row:N",
            title=None,
            sort=list(names),
            axis=alt.Axis(labelLimit=320, grid=True, labels=labels),
            scale=alt.Scale(domain=list(names)),
        )
    )
    exact = ".1%" if percent else ".3~f"
    colour: Any = style.series("source", "", sources, one=True, symbol="circle")
    x = alt.X("low:Q", title=what, axis=axis, scale=alt.Scale(zero=False))
    shape = alt.Scale(domain=sources, range=["circle", "diamond"][: len(sources)])
    tooltip = [
        alt.Tooltip("row:N", title="method"),
        alt.Tooltip("source:N", title="whose"),
        alt.Tooltip("value:Q", title=what, format=exact),
    ]
    layers: list[Chart] = []
    for place, source in enumerate(sources):
        aside = APART * (place - (len(sources) - 1) / 2)
        own = base.transform_filter(alt.datum.source == source).encode(color=colour)
        layers.append(own.mark_rule(strokeWidth=2, yOffset=aside).encode(x=x, x2="high:Q"))
        layers.append(
            own.mark_point(filled=True, size=80, opacity=1, yOffset=aside).encode(
                x=alt.X("value:Q", title=what),
                shape=alt.Shape("source:N", scale=shape, legend=None),
                tooltip=tooltip,
            )
        )
    return alt.layer(*layers)
