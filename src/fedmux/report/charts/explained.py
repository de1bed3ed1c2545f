"""`fedmux explain` as a picture: the clients a method is likely to pick, the effect on the variance, and its
forecasts beside the truth."""

from typing import Literal, Protocol

import altair as alt
import numpy as np

from fedmux.population import Bools, Floats
from fedmux.report.charts import style, thin
from fedmux.report.charts.style import Chart, Rows, short

MOST_BARS = 200  # clients drawn side by side; more are thinned out evenly
MOST_POINTS = 400  # in a panel of forecasts
COLUMNS = 5  # panels of forecasts side by side
KNOWN, GUESS = "seen before", "never seen"

What = Literal["norm", "cosine"]


class Explained(Protocol):
    """What is drawn of an explanation."""

    @property
    def method(self) -> str: ...
    @property
    def round(self) -> int: ...
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
    @property
    def fresh_variance(self) -> Floats | None: ...  # S: None without stale updates
    def beside(self, what: What, s: int) -> tuple[Floats, Floats] | None: ...  # N each: forecasts and truth
    def seen(self, s: int) -> Bools: ...  # N: the method has seen something of them


def explained(explanation: Explained) -> Chart:
    """Who is likely to train, by task, against Random; what that does to the variance; forecasts, if any."""
    picked = alt.hconcat(_who(explanation), _variance(explanation)).resolve_scale(color="independent")
    forecasts = _forecasts(explanation)
    if forecasts is None:
        return picked
    return alt.vconcat(picked, forecasts, spacing=36).resolve_scale(color="independent")


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
    what = f"{explanation.method}, round {explanation.round}: probability that a processor trains, by client"
    title = style.titled(what, [note])
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
        alt.Chart(style.data(spread), title=_of_step(explanation), width=280, height=320)
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


def _of_step(explanation: Explained) -> alt.TitleParams:
    stale = explanation.fresh_variance is not None
    return style.titled("variance of the step", ["of G - beta h, for updates G and old ones h"] * stale)


def _forecasts(explanation: Explained) -> Chart | None:
    """Norms, and cosines if they are forecast: a panel for each task, on its diagonal where all is right."""
    tasks = explanation.tasks[: thin.MOST_PANELS]
    groups: list[list[Chart]] = []
    whats: tuple[What, ...] = ("norm", "cosine")
    for what in whats:
        rows = {task: _pairs(explanation, what, s) for s, task in enumerate(tasks)}
        groups.append([_scatter(own, task, what) for task, own in rows.items() if own])
    if not any(groups):
        return None
    notes = [
        "a point is a client; dashed: exact",
        thin.cut_note(len(tasks), len(explanation.tasks), "tasks"),
    ]
    title = style.titled("Forecasts of the updates that clients would send", notes)
    columns = min(COLUMNS, max(map(len, groups)))
    return alt.vconcat(*(style.joined(group, "", columns=columns) for group in groups if group), title=title)


def _pairs(explanation: Explained, what: What, s: int) -> Rows:
    """The clients of a task that have both sides, thinned out evenly."""
    sides = explanation.beside(what, s)
    if sides is None:
        return []
    forecast, true = sides
    there = np.isfinite(forecast) & np.isfinite(true)
    clients = np.flatnonzero(there & (forecast > 0) & (true > 0) if what == "norm" else there)
    places = np.linspace(0, len(clients) - 1, min(len(clients), MOST_POINTS)).astype(int)
    seen = explanation.seen(s)
    return [
        {
            "client": i,
            "true": short(float(true[i])),
            "forecast": short(float(forecast[i])),
            "seen": KNOWN if seen[i] else GUESS,
        }
        for i in clients[places].tolist()
    ]


def _scatter(rows: Rows, task: str, what: What) -> Chart:
    logarithmic = what == "norm"
    ends = [row[key] for row in rows for key in ("true", "forecast")]
    low, high = (min(ends) / 1.1, max(ends) * 1.1) if logarithmic else (min(*ends, 0.0), max(*ends, 1.0))
    scale = alt.Scale(domain=[low, high], type="log" if logarithmic else "linear", nice=False)
    axis = alt.Axis(format=style.PLAIN, tickCount=4)
    x = alt.X("true:Q", title=f"true {what}", scale=scale, axis=axis)
    y = alt.Y("forecast:Q", title=f"forecast {what}", scale=scale, axis=axis)
    diagonal = alt.Chart(style.data([{"true": end, "forecast": end} for end in (low, high)]))
    exact = diagonal.mark_line(strokeDash=[4, 4], strokeWidth=1, color=style.GREY).encode(x=x, y=y)
    points = (
        alt.Chart(style.data(rows), width=style.LOW, height=style.LOW)
        .mark_circle(size=30, opacity=0.6)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "seen:N",
                sort=[KNOWN, GUESS],
                scale=alt.Scale(domain=[KNOWN, GUESS], range=[style.COLOURS[6], style.GREY]),
                legend=alt.Legend(title="client", symbolOpacity=1),
            ),
            tooltip=[
                alt.Tooltip("client:Q"),
                alt.Tooltip("seen:N"),
                alt.Tooltip("true:Q", format=".4~g"),
                alt.Tooltip("forecast:Q", format=".4~g"),
            ],
        )
    )
    return alt.layer(exact, points).properties(title=style.panel_title(task, style.LOW))
