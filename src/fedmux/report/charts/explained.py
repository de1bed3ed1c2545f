"""`fedmux explain` as a picture: the clients a method is likely to pick, and the effect on the variance."""

from typing import Protocol

import altair as alt
import numpy as np

from fedmux.population import Floats
from fedmux.report.charts import style
from fedmux.report.charts.style import Chart

MOST_BARS = 200  # clients drawn side by side; more are thinned out evenly


class Explained(Protocol):
    """What is drawn of an explanation."""

    @property
    def method(self) -> str: ...
    @property
    def tasks(self) -> list[str]: ...
    @property
    def probability(self) -> Floats: ...  # N x S
    @property
    def random(self) -> Floats: ...  # N x S: Random's probabilities
    @property
    def variance(self) -> Floats: ...  # S
    @property
    def random_variance(self) -> Floats: ...  # S
    @property
    def least_variance(self) -> Floats: ...  # S


def probabilities(explanation: Explained) -> alt.HConcatChart:
    """Who is likely to train, by task, against Random; and what that does to the variance."""
    return alt.hconcat(_who(explanation), _variance(explanation)).resolve_scale(color="independent")


def _who(explanation: Explained) -> Chart:
    tasks = explanation.tasks
    order = np.argsort(-explanation.probability.sum(1), kind="stable")
    shown = order[np.linspace(0, len(order) - 1, min(len(order), MOST_BARS)).astype(int)]
    bars = [
        {"rank": rank, "client": i, "task": task, "probability": float(explanation.probability[i, s])}
        for rank, i in enumerate(shown.tolist())
        for s, task in enumerate(tasks)
    ]
    note = f"{len(shown)} of {len(order)} clients" if len(shown) < len(order) else ""
    title = style.titled(f"{explanation.method}: probability that a processor trains, by client", [note])
    who = (
        alt.Chart(style.data(bars), title=title, width=560, height=320)
        .mark_bar()
        .encode(
            x=alt.X("rank:O", title="clients, most likely first", axis=alt.Axis(labels=False, ticks=False)),
            y=alt.Y("sum(probability):Q", title="probability"),
            color=style.series("task", "task", tasks),
            tooltip=[
                alt.Tooltip("client:Q"),
                alt.Tooltip("task:N"),
                alt.Tooltip("probability:Q", format=".3f"),
            ],
        )
    )
    baseline = float(explanation.random.sum(1).max())
    line = (
        alt.Chart(style.data([{"y": baseline, "text": f"Random {baseline:.3f}"}]))
        .mark_rule(strokeDash=[6, 4], strokeWidth=2)
        .encode(y="y:Q")
    )
    label = line.mark_text(align="right", x="width", dx=-4, dy=-8, fontSize=12).encode(text="text:N")
    return alt.layer(who, line, label)


def _variance(explanation: Explained) -> alt.Chart:
    names = ["Random", "optimum"]
    if explanation.method != "random":
        names.insert(0, explanation.method)
    values = {
        explanation.method: explanation.variance,
        "Random": explanation.random_variance,
        "optimum": explanation.least_variance,
    }
    spread = [
        {"task": task, "series": name, "variance": float(values[name][s])}
        for name in names
        for s, task in enumerate(explanation.tasks)
        if np.isfinite(values[name][s])
    ]
    return (
        alt.Chart(style.data(spread), title="variance of the step", width=280, height=320)
        .mark_bar()
        .encode(
            x=alt.X("task:N", title="task", sort=explanation.tasks, axis=alt.Axis(labelAngle=-30)),
            xOffset=alt.XOffset("series:N", sort=names),
            y=alt.Y("variance:Q", title="variance / learning rate squared"),
            color=style.series("series", "probabilities", names),
            tooltip=[
                alt.Tooltip("task:N"),
                alt.Tooltip("series:N", title="probabilities"),
                alt.Tooltip("variance:Q", format=".4~g"),
            ],
        )
    )
