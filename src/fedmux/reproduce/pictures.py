"""A reproduction in pictures: ours beside the paper's figures, and the charts of the paper's plots."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedmux.report.charts import CHARTS, Chart, beside, plane, save
from fedmux.reproduce.measures import parse, title
from fedmux.reproduce.outcome import Outcome, Part
from fedmux.reproduce.preset import Picture
from fedmux.runs.history import History

MOST_PANELS = 3  # measures side by side


def pictures(outcome: Outcome, parts: Sequence[Part]) -> Iterator[tuple[str, Chart]]:
    """(name, chart) of each that there is data for."""
    keys = [(key, title(key), parse(key)[0].form == "percent") for key in outcome.preset.measures]
    chart = beside(chart_rows(outcome), keys[:MOST_PANELS], outcome.preset.title, outcome.preset.theirs)
    if chart is not None:
        yield "figures", chart
    for part in parts:
        groups = {label: list(group.values()) for label, group in part.runs.items() if group}
        ending = f"-{part.variant.replace(' ', '-')}" if part.variant else ""
        for picture in outcome.preset.charts:
            for name, drawn in _drawn(picture, groups):
                if drawn is not None:
                    yield name + ending, drawn


def chart_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """For the picture of ours beside the paper's."""
    rows = []
    for name, values in outcome.rows.items():
        for key, value in values.items():
            found = [("ours", value.mean, value.deviation)]
            if value.paper is not None:
                found.append((outcome.preset.theirs, value.paper.value, value.paper.spread))
            for source, mean, spread in found:
                if mean is not None:
                    ends = {"low": mean - (spread or 0.0), "high": mean + (spread or 0.0)}
                    rows.append({"row": name, "measure": key, "source": source, "value": mean, **ends})
    return rows


def _drawn(picture: Picture, groups: dict[str, list[History]]) -> Iterator[tuple[str, Chart | None]]:
    """A chart of all runs, or of the first run of each method; of one alone, where methods are alike."""
    kind = next(kind for kind in CHARTS if kind.key == picture.chart)
    if kind.several:
        yield kind.key, kind.draw([run for group in groups.values() for run in group])
        return
    for label, group in groups.items():
        if kind.key == "dynamics":
            yield kind.key, kind.draw(group[:1])
            return
        name = f"{kind.key}-{label.replace('*', '-star').replace(' ', '-')}"
        if kind.key == "groups":
            yield name, plane(group[0], picture.rounds, picture.task)
        else:
            yield name, kind.draw(group[:1])


def write_pictures(folder: Path, outcome: Outcome, parts: Sequence[Part]) -> list[Path]:
    written = []
    for name, chart in pictures(outcome, parts):
        written.append(folder / f"{name}.png")
        save(chart, written[-1])
    return written
