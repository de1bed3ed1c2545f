"""The style of charts: colours, themes, axes, legends that answer to clicks; writing them as pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt

from fedmux.errors import FedmuxError

if TYPE_CHECKING:
    import pandas as pd

# Okabe and Ito's without yellow and black, and two more: colour-blind eyes tell them apart on white and #111.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#9050E0", "#904020"]
GREY = "#8A8A8A"
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]  # colours repeat after eight series, dashes tell them apart
PERCENT, PLAIN = ".3~p", ".6~g"  # numbers on axes
FAINT = 0.12  # what is not picked in the legend
DARK = "#111111"
WIDTH, HEIGHT = 600, 300  # of a single chart
SMALL, LOW = 230, 170  # of one of several

Rows = list[dict[str, Any]]
Chart = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart | alt.ConcatChart | alt.FacetChart


def theme(dark: bool) -> dict[str, Any]:
    """Vega-Lite's config for a light or a dark page; the background is the page's own."""
    text, soft, grid = ("#E4E4E4", "#B4B4B4", "#3A3A3A") if dark else ("#222222", "#666666", "#E4E4E4")
    return {
        "background": "transparent",
        "font": "sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": text,
            "titleColor": text,
            "domainColor": soft,
            "tickColor": soft,
            "gridColor": grid,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelLimit": 150,
            "labelOverlap": True,
        },
        "legend": {
            "labelColor": text,
            "titleColor": text,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 190,
            "symbolStrokeWidth": 2.5,
        },
        "title": {
            "color": text,
            "subtitleColor": soft,
            "fontSize": 14,
            "subtitleFontSize": 11,
            "subtitlePadding": 4,
            "anchor": "start",
            "frame": "group",
            "offset": 10,
        },
        "text": {"color": text},
        "rule": {"color": soft},
        "line": {"strokeWidth": 2, "strokeJoin": "round"},  # a mitred corner at 0 would reach below it
    }


def data(rows: Rows) -> "pd.DataFrame":
    """Rows for a chart. As a frame they are neither checked nor copied at each step, as lists would be."""
    import pandas as pd

    return pd.DataFrame(rows)


def whole() -> Any:
    """A context in which a chart may have as many rows as it has."""
    return alt.data_transformers.enable("default", max_rows=None, consolidate_datasets=True)


def spec(chart: Chart, dark: bool = False) -> dict[str, Any]:
    """What a page embeds."""
    with whole():
        return chart.configure(**theme(dark)).to_dict(validate=False)  # tests validate every chart


def check_picture(path: Path) -> None:
    """Refuse a name that no picture can have, before any work is done for it."""
    if path.suffix.lower() not in (".png", ".svg"):
        name = path.with_suffix(".png").name
        raise FedmuxError(f"{path}: pictures are written as PNG or SVG; name it {name}")
    if not path.absolute().parent.is_dir():
        raise FedmuxError(f"{path}: there is no folder {path.parent}; make it first")


def save(chart: Chart, path: Path, *, dark: bool = False, ppi: int = 144) -> None:
    """A PNG or SVG, by the suffix, on white or dark ground."""
    check_picture(path)
    config = {**theme(dark), "background": DARK if dark else "white", "padding": 12}
    with whole():
        chart.configure(**config).save(path, format=path.suffix[1:].lower(), ppi=ppi)


def titled(text: str, notes: Sequence[str] = ()) -> alt.TitleParams:
    """A title, and below it what has to be known to read the chart."""
    shown = [note for note in notes if note]
    return alt.TitleParams(text, subtitle="; ".join(shown)) if shown else alt.TitleParams(text)


def series(
    field: str,
    title: str,
    names: Sequence[str],
    *,
    legend: bool = True,
    one: bool = False,
    symbol: str = "square",
) -> alt.Color:
    """Colours by name, in order. A legend of a single entry is left out unless `one` asks for it."""
    scale = alt.Scale(domain=list(names), range=[COLOURS[i % len(COLOURS)] for i in range(len(names))])
    shown = _legend(title, symbol) if legend and (one or len(names) > 1) else None
    return alt.Color(f"{field}:N", sort=list(names), scale=scale, legend=shown)


def dashes(field: str, title: str, names: Sequence[str]) -> dict[str, alt.StrokeDash]:
    """An encoding for more names than there are colours; it joins the legend of the colours."""
    if len(names) <= len(COLOURS):
        return {}
    styles = [DASHES[position // len(COLOURS) % len(DASHES)] for position in range(len(names))]
    scale = alt.Scale(domain=list(names), range=styles)
    legend = _legend(title, "stroke")
    return {"strokeDash": alt.StrokeDash(f"{field}:N", sort=list(names), scale=scale, legend=legend)}


def _legend(title: str, symbol: str) -> alt.Legend:
    return alt.Legend(title=title, symbolType=symbol, symbolOpacity=1)


def picked(field: str) -> alt.Parameter:
    """A click on a legend entry picks it, with shift several. One panel of several holds the parameter."""
    return alt.selection_point(fields=[field], bind="legend", name=f"picked_{field}")


def fading(field: str, full: float = 1.0) -> Any:
    """An opacity that fades what is not picked."""
    return alt.when(picked(field)).then(alt.value(full)).otherwise(alt.value(FAINT * full))


def rounds_axis(last: int | None = None) -> alt.X:
    scale = alt.Scale(domain=[0, max(last, 1)], nice=False) if last is not None else alt.Undefined
    return alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1, format="~d", grid=False), scale=scale)


def joined(charts: Sequence[Chart], title: str, notes: Sequence[str] = (), columns: int = 0) -> Chart:
    """Panels under one title, two or three in a row by default."""
    columns = columns or (2 if len(charts) in (2, 4) else 3)
    return alt.concat(*charts, columns=columns, title=titled(title, notes), spacing=24)


def panel_title(text: str, limit: int = SMALL) -> alt.TitleParams:
    return alt.TitleParams(text, fontSize=12, fontWeight="normal", limit=limit)


def short(value: float) -> float:
    """Four digits: more cannot be seen and make pages large."""
    return float(f"{value:.4g}")
