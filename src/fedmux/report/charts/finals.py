"""Final accuracies, or progress, as bars, relative to full participation where it was run."""

from collections.abc import Sequence

import altair as alt
import numpy as np

from fedmux.report.charts import style, thin
from fedmux.report.charts.curves import by_label
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs import statistics
from fedmux.runs.finals import overall
from fedmux.runs.history import History

UPPER_BOUND = "full"
WIDTH = 460


def final_mean(history: History) -> float | None:
    """Over tasks: from the summary, or the same figure of a run that is not finished."""
    final = overall(history.summary)
    if final is not None:
        return final
    scored = [(entry.round, entry.progress.mean) for entry in history.metrics if entry.progress]
    return statistics.final(scored, history.last_round)


def final_rows(groups: dict[str, list[History]]) -> tuple[Rows, bool]:
    """Mean and range over seeds for each label, best first; and whether they are relative to `full`."""
    finals = {
        label: {run.seed: score for run in group if (score := final_mean(run)) is not None}
        for label, group in groups.items()
    }
    finals = {label: scores for label, scores in finals.items() if scores}
    against = {label: _reference(label, groups, finals) for label in finals}
    relative = all(found is not None for found in against.values()) and len(finals) > 1
    rows = []
    for label, scores in finals.items():
        reference = finals[against[label] or label]
        values = _ratios(scores, reference) if relative else list(scores.values())
        rows.append(
            {
                "label": label,
                "value": short(float(np.mean(values))),
                "low": short(min(values)),
                "high": short(max(values)),
                "mean": short(float(np.mean(list(scores.values())))),
                "seeds": len(values),
            }
        )
    return sorted(rows, key=lambda row: -row["value"]), relative


def _reference(
    label: str, groups: dict[str, list[History]], finals: dict[str, dict[int, float]]
) -> str | None:
    """The run of full participation in which all else is equal, or the only one there is."""
    bounds = [other for other in finals if groups[other][0].method == UPPER_BOUND]
    bounds = [other for other in bounds if all(score > 0 for score in finals[other].values())]
    own = UPPER_BOUND + label.removeprefix(groups[label][0].method)
    return own if own in bounds else bounds[0] if len(bounds) == 1 else None


def _ratios(scores: dict[int, float], reference: dict[int, float]) -> list[float]:
    """By seed where both have it, otherwise against the mean."""
    both = [scores[seed] / reference[seed] for seed in scores if seed in reference]
    return both or [score / float(np.mean(list(reference.values()))) for score in scores.values()]


def final_chart(histories: Sequence[History]) -> Chart | None:
    """One bar for each label with the range over seeds."""
    groups = by_label(histories)
    rows, relative = final_rows(groups)
    if len(rows) < 2:
        return None
    names = [label for label in groups if any(row["label"] == label for row in rows)][: thin.MOST_SERIES]
    shown = [row for row in rows if row["label"] in names]
    share = relative or all(0 <= row["value"] <= 1 for row in rows)
    form = ".3f" if relative else ".1%" if share else ".3~g"
    base = alt.Chart(style.data(shown), width=WIDTH, height=alt.Step(26)).encode(
        y=alt.Y("label:N", title=None, sort=[row["label"] for row in shown], axis=alt.Axis(labelLimit=260))
    )
    measure = "accuracy" if all(run.measure == "accuracy" for run in histories) else "progress"
    plain = "final test accuracy" if measure == "accuracy" else "final progress"
    what = f"final {measure} relative to full participation" if relative else plain
    axis = alt.Axis(format=style.PLAIN if relative else style.PERCENT if share else style.PLAIN, tickCount=6)
    bars = base.mark_bar(height={"band": 0.7}).encode(
        x=alt.X("value:Q", title=what, axis=axis),
        color=style.series("label", "method", names, legend=False),
        tooltip=[
            alt.Tooltip("label:N", title="method"),
            alt.Tooltip("value:Q", title=what, format=form),
            alt.Tooltip("mean:Q", title=measure, format=".4~g"),
            alt.Tooltip("low:Q", title="lowest seed", format=form),
            alt.Tooltip("high:Q", title="highest seed", format=form),
            alt.Tooltip("seeds:Q", title="seeds"),
        ],
    )
    text = base.mark_text(align="left", fontSize=11).encode(
        x=alt.value(WIDTH + 8), text=alt.Text("value:Q", format=form)
    )
    layers: list[alt.Chart] = [bars, text]
    several = any(row["seeds"] > 1 for row in shown)
    if several:
        layers.insert(1, base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=what), x2="high:Q"))
    if relative:
        one = alt.Chart(style.data([{"x": 1}])).mark_rule(strokeDash=[4, 3]).encode(x="x:Q")
        layers.append(one)
    notes = [
        "line: range over seeds" if several else "",
        "" if all(run.summary for run in histories) else "some runs are not finished",
        thin.cut_note(len(shown), len(rows), "methods"),
    ]
    return alt.layer(*layers).properties(title=style.titled(f"Final {measure}", notes))
