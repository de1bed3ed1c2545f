"""A reproduction's tables: the papers' figures beside ours, and its claims."""

from collections.abc import Iterable, Iterator, Sequence

from fedmux.reproduce.measures import parse, title
from fedmux.reproduce.outcome import Outcome, Value, Verdict
from fedmux.reproduce.preset import Figure

JUDGED = ["claim", "between", "difference, 95 %", "verdict"]


def text(key: str, value: float | None, spread: float | None = None) -> str:
    """A measure as it stands in a table."""
    if value is None:
        return "-"
    return parse(key)[0].text(value, spread)


def ours(key: str, value: Value) -> str:
    """Mean and deviation; with the number of runs that have it, if some lack it or are missing."""
    found, count = text(key, value.mean, value.deviation), len(value.by_seed)
    if count and count < (value.finished or 0):
        return f"{found} ({count} of {value.finished})"
    if count and count < (value.asked or 0):
        return f"{found} ({count} {'run' if count == 1 else 'runs'})"
    return found


def papers(key: str, figure: Figure | None) -> str:
    return "" if figure is None else text(key, figure.value, figure.spread)


def heads(outcome: Outcome, measures: Sequence[str]) -> list[str]:
    """Names of the columns; a measure with figures of the paper has two."""
    found, theirs = ["mechanism" if outcome.preset.auction else "method"], outcome.preset.theirs
    for key in measures:
        found += [f"{title(key)}: {theirs}", "ours"] if outcome.has_figures(key) else [title(key)]
    return found


def lines(outcome: Outcome, measures: Sequence[str]) -> list[list[str]]:
    """The rows of the table."""
    rows = []
    for name, values in outcome.rows.items():
        cells = [name]
        for key in measures:
            if outcome.has_figures(key):
                cells.append(papers(key, values[key].paper))
            cells.append(ours(key, values[key]))
        rows.append(cells)
    return rows


def judgement(verdict: Verdict) -> list[str]:
    """A claim as a line: what, between whom, by how much, and whether it holds."""
    claim = verdict.claim
    percent = parse(claim.measure)[0].form == "percent"
    scale, unit, digits = (100, " points", 1) if percent else (1, "", 3)
    found = "-"
    if verdict.difference is not None:
        found = f"{scale * verdict.difference:+.{digits}f}"
        if verdict.half_width is not None:
            found += f" ± {scale * verdict.half_width:.{digits}f}"
        found += unit
    return [claim.says, f"{claim.of} - {verdict.against}", found, verdict.verdict]


def tables(outcome: Outcome) -> Iterator[tuple[str | None, list[str], list[list[str]]]]:
    """(title, columns, rows) of each that there is something for: measures, costs, claims."""
    preset = outcome.preset
    for heading, measures in ((preset.heading, preset.measures), (None, preset.costs)):
        if measures:
            yield heading, heads(outcome, measures), lines(outcome, measures)
    if outcome.verdicts:
        yield "claims", JUDGED, [judgement(verdict) for verdict in outcome.verdicts]


def markdown(outcome: Outcome) -> str:
    return "\n\n".join(_table(columns, rows) for _, columns, rows in tables(outcome)) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    made = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*made, *(f"| {' | '.join(row)} |" for row in rows)])
