"""A report: one HTML page with everything in it, for one run or for many. It needs no network to open."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from fedmux.errors import FedmuxError
from fedmux.report.charts import CHARTS, Kind, save, spec, theme
from fedmux.runs import finals
from fedmux.runs.atomic import write_atomically
from fedmux.runs.history import DAMAGED, History
from fedmux.runs.layout import ENVIRONMENT, EXPERIMENT
from fedmux.runs.reading import read_text
from fedmux.runs.scale import over_tasks_of
from fedmux.runs.statistics import FINAL_ROUNDS, deviation, mean, ratios

EXPORTS = "window.vegaEmbed = vegaEmbed; window.vega = vega; window.vegaLite = vegaLite;"
MOST_DETAILED = 6  # methods of which one run is shown in detail


@cache
def templates() -> Environment:
    """Everything that is put into a page is escaped unless it says otherwise."""
    return Environment(loader=PackageLoader("fedmux.report"), autoescape=True, trim_blocks=True)


def part(name: str) -> Markup:
    """A file of ours, put into the page as it is."""
    return Markup(templates().loader.get_source(templates(), name)[0])  # type: ignore[union-attr]


@cache
def bundle() -> Markup:
    """Vega, Vega-Lite and Vega-Embed in one script. Takes seconds to make."""
    import vl_convert

    text = vl_convert.javascript_bundle(EXPORTS).replace("</script", "<\\/script")
    return Markup(text)


def as_json(value: object) -> Markup:
    """JSON that can stand inside a script element, whatever names are in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def report(histories: Sequence[History], title: str) -> str:
    """The page."""
    figures, several = Figures(), len(histories) > 1
    charts = figures.of(histories, "", [kind for kind in CHARTS if kind.several or not several])
    representatives = _representatives(histories)
    detailed = list(representatives.items())[:MOST_DETAILED] if several else []
    of_one = [kind for kind in CHARTS if not kind.several]
    rows = summaries(histories)
    finished = [history.summary for history in histories if history.summary]
    scales = {task: scale for history in histories for task, scale in history.scales.items()}
    measure = over_tasks_of(scales.values())
    values = {
        "title": title,
        "version": version("fedmux"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "histories": histories,
        "rows": rows,
        "relative": any(row["relative"] for row in rows),
        "final_rounds": next((found.get("final_rounds", FINAL_ROUNDS) for found in finished), FINAL_ROUNDS),
        "diverged": [
            f"{history.label}, seed {history.seed}: {task}, round {round}"
            for history in histories
            for task, round in history.diverged.items()
        ],
        "tasks": [(task, _titles(histories, task)) for task in scales],
        "charts": charts,
        "details": [
            (label, figures.of([history], f"run{place}-", of_one))
            for place, (label, history) in enumerate(detailed)
        ],
        "left_out": list(representatives)[MOST_DETAILED:] if several else [],
        "configurations": [_configuration(*pair) for pair in representatives.items()],
        "measure": measure,
        "overall": overall,
        "figure": figure,
    }
    return templates().get_template("report.html").render(**values, **figures.scripts())


class Figures:
    """The charts of a page."""

    def __init__(self) -> None:
        self.specs: dict[str, dict[str, Any]] = {}

    def of(self, histories: Sequence[History], prefix: str, kinds: Sequence[Kind]) -> list[dict[str, str]]:
        """Draws those that there is data for; what the page says of each."""
        shown = []
        for kind in kinds:
            if (chart := kind.draw(histories)) is not None:
                name = f"{prefix}{kind.key}"
                self.specs[name] = {**spec(chart), "config": {}}  # the page's own, light or dark
                shown.append(
                    {"id": name, "title": kind.called(histories), "caption": kind.explained(histories)}
                )
        return shown

    def scripts(self) -> dict[str, Markup]:
        """What a page holds besides its text."""
        themes = {"light": theme(False), "dark": theme(True)}
        return {
            "specs": as_json({"themes": themes, "specs": self.specs}),
            "bundle": bundle(),
            "style": part("page.css"),
            "script": part("charts.js"),
        }


def figure(chart: dict[str, str]) -> Markup:
    """Where a chart will be drawn, with what it shows."""
    shape = Markup(
        '<figure id="{id}"><h3>{title}</h3>'
        '<div class="chart" id="{id}-chart" role="img" aria-label="{title}"></div>'
        "<figcaption>{caption}</figcaption></figure>\n"
    )
    return shape.format(**chart)


def write(histories: Sequence[History], path: Path, title: str) -> None:
    try:
        write_atomically(path, report(histories, title).encode("utf-8", "replace"))
    except OSError as error:
        raise FedmuxError(f"{path}: cannot be written ({error.strerror})") from None


def write_pictures(histories: Sequence[History], folder: Path) -> list[Path]:
    """Every chart that these runs have data for, as PNG."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedmuxError(f"{folder}: cannot be made ({error.strerror})") from None
    written = []
    for kind in CHARTS:
        if (kind.several or len(histories) == 1) and (chart := kind.draw(list(histories))) is not None:
            written.append(folder / f"{kind.key}.png")
            save(chart, written[-1])
    return written


def overall(history: History) -> str:
    """Final mean over tasks, or the newest of a run that is not finished."""
    return percent(history.overall())


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def summaries(histories: Sequence[History]) -> list[dict[str, Any]]:
    """A line for each method: its finished runs, mean and deviation over seeds, best first."""
    by_label: dict[str, list[History]] = {}
    for history in histories:
        if history.summary is not None and _table(history.summary.get("tasks")):
            by_label.setdefault(history.label, []).append(history)
    full = _by_seed(by_label.get("full", []))
    rows = [_line(label, found, full) for label, found in by_label.items()]
    return sorted(rows, key=lambda row: row["order"])


def _line(label: str, runs: Sequence[History], full: dict[int, float]) -> dict[str, Any]:
    found = [run.summary or {} for run in runs]
    values = _known(map(finals.overall, found))
    average, spread, rounds = mean(values), deviation(values), _mean(found, "rounds") or 1.0
    relative = mean(ratios(_by_seed(runs), full))
    scales = {task: scale for run in runs for task, scale in run.scales.items()}
    return {
        "label": label,
        "order": -(average or 0.0),
        "seeds": len(found),
        "overall": percent(average) + ("" if spread is None else f" ± {spread:.1%}"),
        "minimum": percent(mean(_known(finals.overall(summary, "minimum") for summary in found))),
        "relative": "" if relative is None else f"{relative:.3f}",
        "uploads": f"{(_mean(found, 'totals', 'uploads') or 0) / rounds:.1f}",
        "steps": f"{(_mean(found, 'totals', 'gradient_steps') or 0) / rounds:.0f}",
        "seconds": f"{_mean(found, 'seconds') or 0:.0f}",
        "tasks": {
            task: scale.show(mean(_known(finals.score(summary, task) for summary in found)), unit=False)
            for task, scale in scales.items()
        },
    }


def _titles(histories: Sequence[History], task: str) -> str:
    """By what a task is scored; several, if its metric was varied."""
    found = [history.scales[task].title for history in histories if task in history.scales]
    return " or ".join(dict.fromkeys(found))


def _by_seed(runs: Sequence[History]) -> dict[int, float]:
    """Final means over tasks; none if two runs have the same seed: nothing says which of them to pair."""
    found: dict[int, float] = {}
    if len({run.seed for run in runs}) < len(runs):
        return found
    for run in runs:
        value = finals.overall(run.summary)
        if value is not None:
            found[run.seed] = value
    return found


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(summaries: Sequence[dict[str, Any]], *keys: str) -> float | None:
    return mean(_known(finals.number(summary, *keys) for summary in summaries))


def _representatives(histories: Sequence[History]) -> dict[str, History]:
    """The first run of each method."""
    chosen: dict[str, History] = {}
    for history in histories:
        if history.state != DAMAGED and history.metrics:
            chosen.setdefault(history.label, history)
    return chosen


def _configuration(label: str, history: History) -> tuple[str, str, str]:
    return label, read_text(history.path / EXPERIMENT), read_text(history.path / ENVIRONMENT)
