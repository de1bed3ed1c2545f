"""Lines over rounds: accuracy and loss of tasks, figures over tasks, methods compared, accuracy by cost.

Rows come first, as plain dicts, then the chart. A line is the mean over runs of one label (a method, or a
cell of a comparison); with several seeds a band shows their range.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

import altair as alt
import numpy as np

from fedmux.report.charts import look, thin
from fedmux.report.charts.look import Chart, Rows, short
from fedmux.runs.history import Entry, History, number

Metrics = list[Entry]  # of a run, one entry for each round
Groups = dict[str, list[Metrics]]  # the runs of each label
ACCURACY, LOSS, STEP = "test accuracy", "test loss", "step size"
BAND = "band: range over seeds"


def by_label(histories: Sequence[History]) -> dict[str, list[History]]:
    """Runs that differ only in their seed, together; what else has the same label is told apart by name."""
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
    tables = (entry["tasks"] for metrics in runs for entry in metrics)
    return list(dict.fromkeys(chain.from_iterable(tables)))


def last_round(groups: Groups) -> int:
    runs = [metrics for group in groups.values() for metrics in group if metrics]
    return max((metrics[-1]["round"] for metrics in runs), default=0)


def bin_width(groups: Groups, labels: Sequence[str], tasks: Sequence[str] = ("",), figures: int = 1) -> int:
    """Rounds that share a point, so that the rows of these labels and tasks fit into a page."""
    longest = max(map(len, labels), default=0) + max(map(len, tasks), default=0)
    band = 40 if any(len(groups[label]) > 1 for label in labels) else 0
    return thin.bin_width(last_round(groups), figures * len(labels) * len(tasks), row=70 + longest + band)


def curve_rows(groups: Groups, read: Callable[[Entry], float | None], width: int, **also: Any) -> Rows:
    """Mean over the runs of a label in each bin of rounds, with the range where there are several."""
    rows = []
    for label, runs in groups.items():
        by_round: dict[int, list[float]] = {}
        for metrics in runs:
            points = [(entry["round"], value) for entry in metrics if (value := read(entry)) is not None]
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
        rows += curve_rows(groups, lambda entry: number(entry, "tasks", task, key), width, task=task)  # noqa: B023
    return rows


def set_back_rows(groups: Groups, rows: Rows, width: int) -> Rows:
    """The points of curves where, or right after, a run's task diverged and was set back."""
    found: Rows = []
    for label, runs in groups.items():
        for entry in chain.from_iterable(runs):
            events = entry.get("diverged")
            for event in events if isinstance(events, list) else []:
                task = event.get("task") if isinstance(event, dict) else None
                own = [row for row in rows if (row["task"], row["label"]) == (task, label)]
                after = [row for row in own if row["round"] >= thin.middle(entry["round"], width)]
                found += after[:1] or own[-1:]
    return found


def overall_rows(groups: Groups, key: str, width: int) -> Rows:
    """A figure over the tasks (mean, minimum, variance) over rounds."""
    return curve_rows(groups, lambda entry: number(entry, "accuracy", key), width)


def cost_rows(groups: Groups, cost: str, width: int) -> Rows:
    """Mean accuracy against what all tasks have cost up to then; both are means over seeds."""
    rows = []
    for label, runs in groups.items():
        points: dict[int, list[tuple[float, float]]] = {}
        for metrics in runs:
            spent = accumulate(
                sum(number(values, cost) or 0.0 for values in entry["tasks"].values()) for entry in metrics
            )
            scored = [
                (entry["round"], total, score)
                for entry, total in zip(metrics, spent)
                if (score := number(entry, "accuracy", "mean")) is not None
            ]
            costs = thin.thin([(round, total) for round, total, _ in scored], width)
            scores = thin.thin([(round, score) for round, _, score in scored], width)
            for round, total in costs.items():
                points.setdefault(round, []).append((total, scores[round]))
        for round, pairs in sorted(points.items()):
            total, score = np.mean(pairs, axis=0).tolist()
            rows.append({"label": label, "round": round, "cost": short(total), "value": short(score)})
    return rows


def task_chart(groups: Groups, key: str, title: str, what: str) -> Chart | None:
    """Tasks of one method in one panel; several methods side by side, a panel for each task."""
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
    last, domain = last_round(groups), span(rows)
    marks = set_back_rows(groups, rows, width)
    notes.append("logarithmic axis" if far_apart(what, domain) else "")
    notes.append("cross: diverged and set back" if marks else "")
    if single:
        chart = lines(rows, "task", "task", shown, what, last=last, domain=domain, marks=marks)
        return chart.add_params(look.picked("task")).properties(title=look.titled(title, notes))
    panels: list[Chart] = []
    for task in shown:
        own = [row for row in rows if row["task"] == task]
        if own:
            crosses = [mark for mark in marks if mark["task"] == task]
            panel = lines(
                own, "label", "method", labels, what, last=last, domain=domain, small=True, marks=crosses
            )
            panels.append(panel.properties(title=look.panel_title(task)))
    panels[0] = panels[0].add_params(look.picked("label"))
    return look.joined(panels, title, notes)


def over_tasks(histories: Sequence[History]) -> Chart | None:
    """Mean, minimum and variance over tasks, side by side."""
    groups = metrics_of(histories)
    labels = list(groups)[: thin.MOST_SERIES]
    chosen = {label: groups[label] for label in labels}
    last = last_round(groups)
    width = bin_width(groups, labels, figures=3)
    panels: list[Chart] = []
    for key in ("mean", "minimum", "variance"):
        rows = overall_rows(chosen, key, width)
        if not rows:
            return None
        what = "variance over tasks" if key == "variance" else ACCURACY
        titled = {"mean": "mean", "minimum": "worst task", "variance": "variance"}[key]
        panel = lines(rows, "label", "method", labels, what, last=last, domain=span(rows), small=True)
        panels.append(panel.properties(title=look.panel_title(titled)))
    notes = [
        labels[0] if len(labels) == 1 else "",
        BAND if any(len(runs) > 1 for runs in chosen.values()) else "",
        thin.bins_note(width),
        thin.cut_note(len(labels), len(groups), "methods"),
    ]
    panels[0] = panels[0].add_params(look.picked("label"))
    return look.joined(panels, "Accuracy over all tasks", notes)


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
    what = f"{ACCURACY}, mean over tasks"
    chart = lines(rows, "label", "method", labels, what, last=last, domain=span(rows))
    return chart.add_params(look.picked("label")).properties(title=look.titled(title, notes))


def cost_chart(histories: Sequence[History], cost: str, title: str, what: str) -> Chart | None:
    """Mean accuracy against a cost of all tasks together, on a logarithmic axis where costs lie far apart."""
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
    chart = lines(rows, "label", "method", labels, f"{ACCURACY}, mean over tasks", x=x, domain=span(rows))
    notes = [
        labels[0] if len(labels) == 1 else "",
        "logarithmic axis" if logarithmic else "",
        "means over seeds" if any(len(groups[label]) > 1 for label in labels) else "",
        thin.bins_note(width),
        thin.cut_note(len(labels), len(groups), "methods"),
    ]
    return chart.add_params(look.picked("label")).properties(title=look.titled(title, notes))


def task_accuracy(metrics: Metrics, title: str) -> Chart:
    """One line for each task of a run."""
    return task_chart({title: [metrics]}, "accuracy", "Accuracy of each task", ACCURACY) or _nothing(title)


def method_accuracy(curves: Groups, title: str) -> Chart:
    """One line for each label: mean over tasks and seeds; the band is the range over seeds."""
    return method_chart(curves, title) or _nothing(title)


def lines(
    rows: Rows,
    field: str,
    series: str,
    names: Sequence[str],
    what: str,
    *,
    x: alt.X | None = None,
    last: int | None = None,
    domain: tuple[float, float] | None = None,
    small: bool = False,
    marks: Rows | None = None,
) -> alt.LayerChart | alt.FacetChart:
    """Lines coloured by a field, bands where rows have a range, points that answer to the mouse; crosses at
    some of the rows."""
    x = look.rounds_axis(last) if x is None else x
    size = (look.SMALL, look.LOW) if small else (look.WIDTH, look.HEIGHT)
    form = value_format(rows, what)
    scale = alt.Scale(domain=list(domain), nice=5) if domain else alt.Scale(zero=False)
    if far_apart(what, domain):
        scale = alt.Scale(domain=list(domain or ()), type="log", nice=False)
    axis = alt.Axis(format=form, tickCount=5)
    base = alt.Chart(look.data(rows), width=size[0], height=size[1])
    colour = look.series(field, series, names, symbol="stroke")
    line = base.mark_line(point="transparent").encode(
        x=x,
        y=alt.Y("value:Q", title=what, axis=axis, scale=scale),
        color=colour,
        strokeOpacity=look.fading(field),  # not opacity, which would show the points
        tooltip=_tooltip(rows[0], what, form),
        **look.dashes(field, series, names),
    )
    layers = [line]
    if what == STEP:  # that of full participation
        one = base.transform_aggregate(lines="count()").mark_rule(strokeDash=[4, 3], strokeWidth=1)
        layers.append(one.encode(y=alt.YDatum(1, title=what)))
    if any("low" in row for row in rows):
        y = alt.Y("low:Q", title=what, axis=axis, scale=scale)  # the same title, since two would be joined
        band = base.mark_area(line=False).encode(
            x=x, y=y, y2="high:Q", color=colour, opacity=look.fading(field, 0.2)
        )
        layers.insert(0, band)
    if marks:
        cross = alt.Chart(look.data(marks)).mark_point(shape="cross", angle=45, size=110, filled=True)
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
    """Per cent for accuracies; a task's own metric may be something else."""
    share = ACCURACY in what and all(0 <= row["value"] <= 1 for row in rows)
    return look.PERCENT if share else look.PLAIN


def _tooltip(row: dict[str, Any], what: str, form: str) -> list[alt.Tooltip]:
    known = {
        "label": alt.Tooltip("label:N", title="method"),
        "task": alt.Tooltip("task:N", title="task"),
        "round": alt.Tooltip("round:Q", title="round", format="d"),
        "cost": alt.Tooltip("cost:Q", title="cost", format=",.0f"),
    }
    shown = [tooltip for key, tooltip in known.items() if key in row]
    detailed = ".1%" if form == look.PERCENT else ".4~g"
    shown.append(alt.Tooltip("value:Q", title=what, format=detailed))
    ends = (("low", "lowest seed"), ("high", "highest seed"))
    return shown + [alt.Tooltip(f"{k}:Q", title=t, format=detailed) for k, t in ends if k in row]


def _labels(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["label"] for row in rows))


def _nothing(title: str) -> Chart:
    """For a run that was never evaluated: an empty frame."""
    return alt.Chart(look.data([]), title=title, width=look.WIDTH, height=look.HEIGHT).mark_point()
