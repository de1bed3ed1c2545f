"""Lines over rounds: scores and losses of tasks, figures over tasks, methods compared, accuracy by cost.

Rows come first, as plain dicts, then the chart. A line is the mean over runs of one label (a method, or a
cell of a comparison); with several seeds a band shows their range.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from fedmux.report.charts import style, thin
from fedmux.report.charts.lines import ACCURACY, PROGRESS, far_apart, lines, span
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs.history import History
from fedmux.runs.rounds import Round
from fedmux.runs.scale import ACCURACIES, Scale

Metrics = list[Round]  # of a run
Groups = dict[str, list[Metrics]]  # the runs of each label
BAND = "band: range over seeds"
ACCURACY_TITLE = "Accuracy of each task"


class Axis(NamedTuple):
    """Of a task's figures; tasks that have the same share a panel."""

    title: str
    lower: bool = False  # is better, which the panel says
    share: bool = False  # shown in per cent


def by_label(histories: Sequence[History]) -> dict[str, list[History]]:
    """Runs that differ only in their seed, together; others with the same label are distinguished by name."""
    groups: dict[str, list[History]] = {}
    for history in histories:
        groups.setdefault(history.label, []).append(history)
    groups = _divided(groups, lambda history: history.name)
    return _divided(groups, lambda history: history.path.name)


def _divided(groups: dict[str, list[History]], name: Callable[[History], str]) -> dict[str, list[History]]:
    """Groups in which a seed occurs twice, divided by a name of their runs."""
    divided: dict[str, list[History]] = {}
    for label, group in groups.items():
        twice = len({history.seed for history in group}) < len(group)
        for history in group:
            divided.setdefault(f"{label} ({name(history)})" if twice else label, []).append(history)
    return divided


def metrics_of(histories: Sequence[History]) -> Groups:
    """The figures of each label's runs, without runs that have none."""
    recorded = [history for history in histories if history.metrics]
    return {label: [run.metrics for run in group] for label, group in by_label(recorded).items()}


def tasks_of(groups: Groups) -> list[str]:
    """Every task of any run, in the order in which they appear."""
    runs = [metrics for group in groups.values() for metrics in group]
    tables = (entry.tasks for metrics in runs for entry in metrics)
    return list(dict.fromkeys(chain.from_iterable(tables)))


def last_round(groups: Groups) -> int:
    runs = [metrics for group in groups.values() for metrics in group if metrics]
    return max((metrics[-1].round for metrics in runs), default=0)


def bin_width(groups: Groups, labels: Sequence[str], tasks: Sequence[str] = ("",), figures: int = 1) -> int:
    """Rounds that share a point, so that the rows of these labels and tasks fit into a page."""
    longest = max(map(len, labels), default=0) + max(map(len, tasks), default=0)
    band = 40 if any(len(groups[label]) > 1 for label in labels) else 0
    return thin.bin_width(last_round(groups), figures * len(labels) * len(tasks), row=70 + longest + band)


def curve_rows(groups: Groups, read: Callable[[Round], float | None], width: int, **also: Any) -> Rows:
    """Mean over the runs of a label in each bin of rounds, with the range where there are several."""
    rows = []
    for label, runs in groups.items():
        by_round: dict[int, list[float]] = {}
        for metrics in runs:
            points = [(entry.round, value) for entry in metrics if (value := read(entry)) is not None]
            for round, value in thin.thin(points, width).items():
                by_round.setdefault(round, []).append(value)
        for round, values in sorted(by_round.items()):
            row = {**also, "label": label, "round": round, "value": short(float(np.mean(values)))}
            if len(runs) > 1:
                row |= {"low": short(min(values)), "high": short(max(values))}
            rows.append(row)
    return rows


def task_rows(groups: Groups, tasks: Sequence[str], key: str, width: int) -> Rows:
    """A figure of each task over rounds."""
    rows: Rows = []
    for task in tasks:
        rows += curve_rows(groups, lambda entry: getattr(entry.of(task), key), width, task=task)  # noqa: B023
    return rows


def set_back_rows(groups: Groups, rows: Rows, width: int) -> Rows:
    """The points of curves where, or right after, a run's task diverged and was set back."""
    found: Rows = []
    for label, runs in groups.items():
        for entry in chain.from_iterable(runs):
            for event in entry.diverged:
                own = [row for row in rows if (row["task"], row["label"]) == (event.task, label)]
                after = [row for row in own if row["round"] >= thin.middle(entry.round, width)]
                found += after[:1] or own[-1:]
    return found


def overall_rows(groups: Groups, key: str, width: int) -> Rows:
    """A figure over the tasks (mean, minimum, variance) over rounds."""
    return curve_rows(groups, lambda entry: getattr(entry.progress, key, None), width)


def cost_rows(groups: Groups, cost: str, width: int) -> Rows:
    """Mean over tasks against what all tasks have cost up to then; both are means over seeds."""
    rows = []
    for label, runs in groups.items():
        points: dict[int, list[tuple[float, float]]] = {}
        for metrics in runs:
            spent = accumulate(
                sum(getattr(figures, cost) or 0 for figures in entry.tasks.values()) for entry in metrics
            )
            scored = [
                (entry.round, total, entry.progress.mean)
                for entry, total in zip(metrics, spent)
                if entry.progress
            ]
            costs = thin.thin([(round, total) for round, total, _ in scored], width)
            scores = thin.thin([(round, score) for round, _, score in scored], width)
            for round, total in costs.items():
                points.setdefault(round, []).append((total, scores[round]))
        for round, pairs in sorted(points.items()):
            total, score = np.mean(pairs, axis=0).tolist()
            rows.append({"label": label, "round": round, "cost": short(total), "value": short(score)})
    return rows


def measure_of(groups: Groups) -> str:
    """What figures over tasks are: accuracy, or progress if a task has another metric."""
    runs = chain.from_iterable(groups.values())
    unlike = any(entry.progress and not entry.accuracy for entry in chain.from_iterable(runs))
    return PROGRESS if unlike else ACCURACY


def task_chart(groups: Groups, key: str, title: str, axes: Mapping[str, Axis]) -> Chart | None:
    """Tasks of one method in one panel for each axis; several methods side by side, a panel for each task."""
    labels, tasks = list(groups)[: thin.MOST_SERIES], tasks_of(groups)
    single = len(labels) == 1
    shown = tasks[: thin.MOST_SERIES if single else thin.MOST_PANELS]
    width = bin_width(groups, labels, shown)
    rows = task_rows({label: groups[label] for label in labels}, shown, key, width)
    if not rows:
        return None
    notes = [
        labels[0] if single else "",
        BAND if any("low" in row for row in rows) else "",
        thin.bins_note(width),
        thin.cut_note(len(shown), len(tasks), "tasks"),
        thin.cut_note(len(labels), len(groups), "methods"),
    ]
    marks = set_back_rows(groups, rows, width)
    alike: dict[Axis, list[str]] = {}  # tasks whose figures can share an axis
    for task in dict.fromkeys(row["task"] for row in rows):
        alike.setdefault(axes[task], []).append(task)
    domains = {axis: span([row for row in rows if row["task"] in own]) for axis, own in alike.items()}
    notes.append(
        "logarithmic axis" if any(far_apart(axis.title, domain) for axis, domain in domains.items()) else ""
    )
    notes.append("cross: diverged and set back" if marks else "")
    panels: list[Chart] = []
    for axis, own in alike.items():
        for tasks_shown in [own] if single else [[task] for task in own]:
            panel = lines(
                [row for row in rows if row["task"] in tasks_shown],
                *(("task", "task", shown) if single else ("label", "method", labels)),
                axis.title,
                x=style.rounds_axis(last_round(groups)),
                domain=domains[axis],
                share=axis.share,
                small=not single or len(alike) > 1,
                marks=[mark for mark in marks if mark["task"] in tasks_shown],
            )
            lower = ", lower is better" if axis.lower else ""
            named = "" if single and len(alike) == 1 else ", ".join(tasks_shown)
            panels.append(panel.properties(title=style.panel_title(f"{named}{lower}")))
    panels[0] = panels[0].add_params(style.picked("task" if single else "label"))
    if len(panels) == 1 and single:
        return panels[0].properties(title=style.titled(title, notes))
    return style.joined(panels, title, notes)


def score_chart(histories: Sequence[History]) -> Chart | None:
    """Scores of the tasks, each in its own unit."""
    scales = {task: scale for history in histories for task, scale in history.scales.items()}
    return _scores(metrics_of(histories), scales)


def _scores(groups: Groups, scales: Mapping[str, Scale]) -> Chart | None:
    axes = {task: _axis(scales.get(task, ACCURACIES)) for task in tasks_of(groups)}
    what = ACCURACY_TITLE if {*axes.values()} <= {_axis(ACCURACIES)} else "Score of each task"
    return task_chart(groups, "score", what, axes)


def over_tasks(histories: Sequence[History]) -> Chart | None:
    """Mean, minimum and variance over tasks, side by side."""
    groups = metrics_of(histories)
    labels = list(groups)[: thin.MOST_SERIES]
    chosen = {label: groups[label] for label in labels}
    last = last_round(groups)
    width, measure = bin_width(groups, labels, figures=3), measure_of(chosen)
    panels: list[Chart] = []
    for key in ("mean", "minimum", "variance"):
        rows = overall_rows(chosen, key, width)
        if not rows:
            return None
        what = "variance over tasks" if key == "variance" else measure
        titled = {"mean": "mean", "minimum": "worst task", "variance": "variance"}[key]
        panel = lines(
            rows, "label", "method", labels, what, x=style.rounds_axis(last), domain=span(rows), small=True
        )
        panels.append(panel.properties(title=style.panel_title(titled)))
    notes = [
        labels[0] if len(labels) == 1 else "",
        BAND if any(len(runs) > 1 for runs in chosen.values()) else "",
        thin.bins_note(width),
        thin.cut_note(len(labels), len(groups), "methods"),
    ]
    panels[0] = panels[0].add_params(style.picked("label"))
    return style.joined(panels, f"{measure.removeprefix('test ').capitalize()} over all tasks", notes)


def method_chart(groups: Groups, title: str) -> Chart | None:
    """One line for each label: mean over tasks and seeds."""
    labels = list(groups)[: thin.MOST_SERIES]
    last = last_round(groups)
    width = bin_width(groups, labels)
    rows = overall_rows({label: groups[label] for label in labels}, "mean", width)
    if not rows:
        return None
    notes = [
        BAND if any("low" in row for row in rows) else "",
        thin.bins_note(width),
        thin.cut_note(len(labels), len(groups), "methods"),
    ]
    what = f"{measure_of(groups)}, mean over tasks"
    chart = lines(rows, "label", "method", labels, what, x=style.rounds_axis(last), domain=span(rows))
    return chart.add_params(style.picked("label")).properties(title=style.titled(title, notes))


def cost_chart(histories: Sequence[History], cost: str, title: str, what: str) -> Chart | None:
    """Mean over tasks against a cost of all of them, on a logarithmic axis where costs lie far apart."""
    groups = metrics_of(histories)
    labels = list(groups)[: thin.MOST_SERIES]
    width = bin_width(groups, labels)
    rows = cost_rows({label: groups[label] for label in labels}, cost, width)
    totals = [max(row["cost"] for row in rows if row["label"] == label) for label in _labels(rows)]
    if not totals or not all(totals):
        return None
    logarithmic = max(totals) > 8 * min(totals)
    if logarithmic:
        rows = [row for row in rows if row["cost"] > 0]
    kind = alt.Scale(type="log", nice=False) if logarithmic else alt.Scale(nice=False)
    x = alt.X("cost:Q", title=what, scale=kind, axis=alt.Axis(format=".3~s", grid=False, tickCount=6))
    mean = f"{measure_of(groups)}, mean over tasks"
    chart = lines(rows, "label", "method", labels, mean, x=x, domain=span(rows))
    notes = [
        labels[0] if len(labels) == 1 else "",
        "logarithmic axis" if logarithmic else "",
        "means over seeds" if any(len(groups[label]) > 1 for label in labels) else "",
        thin.bins_note(width),
        thin.cut_note(len(labels), len(groups), "methods"),
    ]
    titled = f"{measure_of(groups).removeprefix('test ').capitalize()} {title}"
    return chart.add_params(style.picked("label")).properties(title=style.titled(titled, notes))


def _axis(scale: Scale) -> Axis:
    title = ACCURACY if scale.name == ACCURACIES.name else scale.title
    return Axis(title, scale.better == "lower", scale.share and scale.name != ACCURACIES.name)


def task_accuracy(metrics: Metrics, title: str, scales: Mapping[str, Scale] | None = None) -> Chart:
    """One line for each task of a run."""
    return _scores({title: [metrics]}, scales or {}) or _nothing(title)


def method_accuracy(curves: Groups, title: str) -> Chart:
    """One line for each label: mean over tasks and seeds; the band is the range over seeds."""
    return method_chart(curves, title) or _nothing(title)


def _labels(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["label"] for row in rows))


def _nothing(title: str) -> Chart:
    """For a run that was never evaluated: an empty frame."""
    return alt.Chart(style.data([]), title=title, width=style.WIDTH, height=style.HEIGHT).mark_point()
