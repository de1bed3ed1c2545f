"""Auctions: mechanisms compared over budgets, and what recruitment before a run brought and cost."""

from typing import Any

import altair as alt

from fedmux.report.charts import style
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs.finals import number
from fedmux.runs.history import History


def take_up(rows: Rows) -> alt.HConcatChart:
    """Auctions compared: the least take-up over tasks, and how far tasks are apart, over budgets."""
    rows = [row for row in rows if row["mechanism"] != "budget-fair-as-published"]  # has the same winners
    names = list(dict.fromkeys(row["mechanism"] for row in rows))

    def panel(field: str, title: str) -> alt.Chart:
        return (
            alt.Chart(style.data(rows), title=title, width=360, height=style.HEIGHT)
            .mark_line(point="transparent")
            .encode(
                x=alt.X("budget:Q", title="budget"),
                y=alt.Y(f"{field}:Q", title="users", scale=alt.Scale(nice=6), axis=alt.Axis(tickCount=6)),
                color=style.series("mechanism", "mechanism", names, symbol="stroke"),
                strokeOpacity=style.fading("mechanism"),
                tooltip=[
                    alt.Tooltip("mechanism:N"),
                    alt.Tooltip("budget:Q"),
                    alt.Tooltip(f"{field}:Q", title="users", format=".4~g"),
                ],
            )
        )

    smallest = panel("minimum", "smallest take-up").add_params(style.picked("mechanism"))
    return alt.hconcat(smallest, panel("difference", "largest minus smallest"))


def recruitment_rows(history: History) -> Rows:
    """Users recruited for each task and what they are paid together (None: not recorded)."""
    recruited = (history.summary or {}).get("recruitment")
    taken = recruited.get("take_up") if isinstance(recruited, dict) else None
    payment = history.population.get("award_payment")
    known = payment is not None and payment.ndim == 2 and payment.shape[1] == len(history.tasks)
    paid = payment.sum(0).tolist() if known and payment is not None else [None] * len(history.tasks)
    return [
        {"task": task, "users": short(users), "paid": None if cost is None else short(cost)}
        for task, cost in zip(history.tasks, paid)
        if (users := number(taken, task)) is not None
    ]


def recruitment(history: History) -> Chart | None:
    """Take-up and payments, a bar for each task."""
    rows = recruitment_rows(history)
    if not rows:
        return None
    panels = [_bars(rows, "users", "take-up", "clients", history)]
    if all(row["paid"] is not None for row in rows):
        panels.append(_bars(rows, "paid", "payments", "units of the budget", history))
    recruited: dict[str, Any] = (history.summary or {})["recruitment"]
    money = [
        f"{key} {round(value, 9) + 0.0:.4g}"  # what is left of a budget that is spent is no -7e-15
        for key in ("paid", "budget", "leftover")
        if (value := number(recruited, key)) is not None
    ]
    mechanism = history.table.get("recruitment")
    name = mechanism.get("mechanism", "") if isinstance(mechanism, dict) else ""
    return style.joined(panels, "Recruitment before training", [str(name), ", ".join(money)], columns=2)


def _bars(rows: Rows, field: str, title: str, what: str, history: History) -> Chart:
    base = alt.Chart(style.data(rows), width=style.SMALL, height=alt.Step(26)).encode(
        x=alt.X(f"{field}:Q", title=what, axis=alt.Axis(tickCount=5, format=".3~s")),
        y=alt.Y("task:N", title=None, sort=history.tasks, axis=alt.Axis(labelLimit=220)),
        tooltip=[alt.Tooltip("task:N"), alt.Tooltip(f"{field}:Q", title=what)],
    )
    bars = base.mark_bar(height={"band": 0.7}).encode(
        color=style.series("task", "task", history.tasks, legend=False)
    )
    text = base.mark_text(align="left", dx=4, fontSize=11).encode(text=alt.Text(f"{field}:Q", format=".4~s"))
    return alt.layer(bars, text, title=style.panel_title(title))
