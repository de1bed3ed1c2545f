"""What happened to the fleet in one run: who came, left or failed; and where the seconds went."""

from collections import Counter

import altair as alt
import numpy as np

from fedmux.report.charts import style, thin
from fedmux.report.charts.bars import stacked
from fedmux.report.charts.style import Chart, Rows, short
from fedmux.runs.history import History

PHASES = ("meet", "signals", "plan", "train", "aggregate", "evaluate")
DROPPED = "dropped"
MOST_NAMED = 60  # tasks that come or go
MOST_MARKS = 60  # rounds in which clients come or go
MOST_LETTERS = 160  # pixels of a task's name
LINES, LINE = 3, 13  # of names, and the pixels of one


def client_rows(history: History, width: int) -> Rows:
    """Clients that can train, in each bin of rounds."""
    points = [(entry.round, entry.clients) for entry in history.metrics if entry.clients is not None]
    return [{"round": round, "clients": short(value)} for round, value in thin.thin(points, width).items()]


def event_rows(history: History, width: int) -> Rows:
    """How many clients joined or left in each bin of rounds."""
    counts: Counter[tuple[int, str]] = Counter()
    for entry in history.metrics:
        for what in ("joined", "left"):
            if who := entry.events.get(what):
                counts[thin.middle(entry.round, width), what] += len(who)
    return [{"round": round, "what": what, "number": n} for (round, what), n in sorted(counts.items())]


def task_event_rows(history: History) -> Rows:
    """Tasks that started or ended, with the round."""
    rows: Rows = []
    for entry in history.metrics:
        for key, what in (("tasks_joined", "starts"), ("tasks_left", "ends")):
            rows += [{"round": entry.round, "text": f"{name} {what}"} for name in entry.events.get(key, [])]
    return rows[:MOST_NAMED]


def loss_rows(history: History, width: int) -> Rows:
    """Jobs that did not return (`dropped`) and failures by kind: means a round, in each bin of rounds."""
    counts: Counter[tuple[int, str]] = Counter()
    rounds: Counter[int] = Counter()
    for entry in history.metrics:
        place = thin.middle(entry.round, width)
        rounds[place] += 1
        counts[place, DROPPED] += entry.dropped or 0
        for failure in entry.failures:
            counts[place, failure.kind or "unknown"] += 1
    return [
        {"round": round, "kind": kind, "number": short(n / rounds[round])}
        for (round, kind), n in sorted(counts.items())
        if n
    ]


def dynamics(history: History) -> Chart | None:
    """Clients over rounds with marks where some join or leave; below, what did not come back."""
    panels: list[Chart] = []
    width = thin.bin_width(history.last_round, 2)
    clients = client_rows(history, width)
    if clients:
        panels.append(_clients(history, clients))
    bars = thin.bin_width(history.last_round, 4, thin.MOST_BARS)
    lost = loss_rows(history, bars)
    for kinds, title in ((True, "jobs that did not return"), (False, "failures by kind")):
        rows = [row for row in lost if (row["kind"] == DROPPED) is kinds]
        if rows:
            panels.append(_lost(history, rows, title, bars))
    if not panels:
        return None
    notes = [f"{history.label}, seed {history.seed}", thin.bins_note(max(width, bars))]
    return style.joined(panels, "Clients that come, go and fail", notes, columns=1).resolve_scale(
        color="independent", shape="independent"
    )


def _clients(history: History, rows: Rows) -> Chart:
    x = style.rounds_axis().scale(domain=list(_ends(history)), nice=False)
    high = max(row["clients"] for row in rows)
    y = alt.Y(
        "clients:Q",
        title="clients that can train",
        scale=alt.Scale(domain=[0, high * 1.2 + 1], nice=True),
        axis=alt.Axis(tickMinStep=1, tickCount=5, format=".4~s"),
    )
    line = (
        alt.Chart(style.data(rows), width=style.WIDTH, height=200)
        .mark_line(point="transparent", interpolate="step", color=style.COLOURS[0])
        .encode(x=x, y=y, tooltip=[alt.Tooltip("round:Q"), alt.Tooltip("clients:Q")])
    )
    marks = event_rows(history, 1)
    if len(marks) > 2 * MOST_MARKS:
        marks = event_rows(history, thin.bin_width(history.last_round, 1, MOST_MARKS))
    known = [row["round"] for row in rows], [row["clients"] for row in rows]
    for row in marks:  # above and below the line
        aside = 0.05 * high if row["what"] == "joined" else -0.05 * high
        row["clients"] = short(float(np.interp(row["round"], *known)) + aside)
    return alt.layer(line, *([_marks(marks, x, y)] if marks else []), *_task_events(history, x))


def _marks(rows: Rows, x: alt.X, y: alt.Y) -> alt.Chart:
    kinds, colours = ["joined", "left"], [style.COLOURS[2], style.COLOURS[1]]
    shapes = alt.Scale(domain=kinds, range=["triangle-up", "triangle-down"])
    return (
        alt.Chart(style.data(rows))
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=x,
            y=y,
            shape=alt.Shape("what:N", title="clients", scale=shapes),
            color=alt.Color("what:N", title="clients", scale=alt.Scale(domain=kinds, range=colours)),
            tooltip=[
                alt.Tooltip("round:Q"),
                alt.Tooltip("what:N"),
                alt.Tooltip("number:Q", title="clients"),
            ],
        )
    )


def _task_events(history: History, x: alt.X) -> list[alt.Chart]:
    """A line for each task that starts or ends, and its name where there is room."""
    rows = placed(task_event_rows(history), _ends(history)[1])
    if not rows:
        return []
    data = style.data(rows)
    rules = alt.Chart(data).mark_rule(strokeDash=[4, 3])
    layers = [rules.encode(x=x, tooltip=[alt.Tooltip("round:Q"), alt.Tooltip("text:N", title="task")])]
    for line, side in sorted({(row["line"], row["side"]) for row in rows if row["line"] >= 0}):
        words = alt.Chart(data).transform_filter(f"datum.line == {line} && datum.side == '{side}'")
        shift = 4 if side == "left" else -4
        words = words.mark_text(align=side, dx=shift, y=8 + LINE * line, fontSize=11, limit=MOST_LETTERS)
        layers.append(words.encode(x=x, text="text:N"))
    return layers


def placed(rows: Rows, last: float) -> Rows:
    """Rows with the line (-1: no room) and the side on which their text is written without overlapping."""
    ends = [-1.0] * LINES
    found = []
    for row in rows:
        at, length = style.WIDTH * row["round"] / last, min(6.5 * len(row["text"]) + 8, MOST_LETTERS)
        fits = at + length <= style.WIDTH
        begin = at if fits else at - length
        line = next((k for k, end in enumerate(ends) if end <= begin), -1)
        if line >= 0:
            ends[line] = begin + length
        found.append({**row, "line": line, "side": "left" if fits else "right"})
    return found


def _ends(history: History) -> tuple[float, float]:
    """Of the axis of rounds: bars reach half a round further than lines."""
    return 0.0, max(history.last_round, 1) + 0.5


def _lost(history: History, rows: Rows, title: str, width: int) -> Chart:
    names = list(dict.fromkeys(row["kind"] for row in rows))
    what = "a round" if width > 1 else "in the round"
    chart = stacked(
        rows, "number", "kind", names, f"number {what}", width, ".3~g", ends=_ends(history), height=110
    )
    return chart.properties(title=style.panel_title(title))


def phase_rows(history: History, width: int) -> Rows:
    """Mean seconds of a round by phase, in each bin of rounds."""
    names = phase_names(history)
    rows = []
    for name in names:
        points = [
            (entry.round - 1, entry.phases.get(name, 0.0))
            for entry in history.metrics
            if entry.phases and entry.round
        ]
        for round, seconds in thin.thin(points, width).items():
            rows.append({"round": round + 1, "phase": name, "seconds": short(seconds)})
    return rows


def phase_names(history: History) -> list[str]:
    """In the order in which a round goes through them; those of a fleet's own last."""
    present = {name for entry in history.metrics for name in entry.phases}
    return [name for name in PHASES if name in present] + sorted(present - set(PHASES))


def phases(history: History) -> Chart | None:
    """Seconds of a round, stacked by what they went into."""
    names = phase_names(history)
    width = thin.bin_width(history.last_round, len(names), thin.MOST_BARS)
    rows = phase_rows(history, width)
    if not rows:
        return None
    note = f"a bar is the mean of {width} rounds" if width > 1 else ""
    title = style.titled("Where the time goes", [f"{history.label}, seed {history.seed}", note])
    return stacked(rows, "seconds", "phase", names, "seconds a round", width, ".3~g").properties(title=title)
