"""Results as tables in the terminal."""

import csv
import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table

from fedmux.runs import finals
from fedmux.runs.scale import Scale, scale_of_final

if TYPE_CHECKING:
    from fedmux.explain import Explanation

# Names and labels are the user's, so they are not read as markup. A file has room for a whole table.
output = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)


def run_table(summary: dict[str, Any]) -> Table:
    """Final figures of a run, one row per task."""
    thresholds, plain = list(summary["rounds_to"]), finals.by_accuracy(summary)
    title = f"{summary['name']}: {summary['method']}, {summary['rounds']} rounds, seed {summary['seed']}"
    scored = ["accuracy"] if plain else ["score", "metric", "progress"]
    marks = ", ".join(f"{100 * float(threshold):g}" for threshold in thresholds)
    heads = [*scored, "loss", f"rounds to {marks} %"]
    table = Table(
        Column("task", no_wrap=True),
        *(Column(head, justify="right") for head in heads),
        title=title,
        caption=f"{'accuracy' if plain else 'score'}: {_final(summary)}; loss: of the last"
        f"{'' if plain else '; progress: from the start (0 %) to the target (100 %)'}",
    )

    def first_rounds(values: dict[str, Any]) -> str:
        rounds = [values["rounds_to"][threshold] for threshold in thresholds]
        return "  ".join("-" if number is None else str(number) for number in rounds)

    for task, values in summary["tasks"].items():
        name = task + (f" (diverged in round {values['diverged']})" if "diverged" in values else "")
        scale = scale_of_final(values)
        cells = [scale.show(finals.score(summary, task))]
        if not plain:
            cells += [scale.name, _percent(finals.progress(summary, task))]
        table.add_row(name, *cells, f"{values['last_loss']:.3f}", first_rounds(values))
    if (mean := finals.overall(summary)) is not None:
        table.add_section()
        blank = [] if plain else ["", ""]
        table.add_row("mean", *blank, _percent(mean), "", first_rounds(summary))
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def comparison_tables(rows: list[dict[str, Any]], name: str) -> Iterator[Table]:
    """Figures over tasks, and of unlike tasks also those of each."""
    if rows[0]["measure"] != "accuracy":
        yield scores_table(rows)
    yield comparison_table(rows, name)


def comparison_table(rows: list[dict[str, Any]], name: str) -> Table:
    """One row per label, best first, compared with the baseline."""
    measure = rows[0]["measure"]
    baseline, *others = {row["against"] for row in rows}
    if others:  # one for each setting
        baseline = next((row["method"] for row in rows if row["baseline"]), "baseline")
    heads = [measure, "worst\ntask", "relative", f"points vs\n{baseline}", "uploads", "steps"]
    table = Table(
        Column("method", overflow="fold"),  # the one to give way on a narrow terminal
        *(Column(head, justify="right", no_wrap=True) for head in heads),
        title=f"{name}: final {measure} over tasks, seeds {_seeds(rows)}",
        caption=f"{measure}: {_final(rows[0])} ± deviation over seeds; "
        f"{'*: a task diverged and was paused; ' if any(row.get('diverged') for row in rows) else ''}"
        f"relative and points: paired by seed{', all else equal' if others else ''}, ± 95 % confidence; "
        "uploads and steps: a round",
    )
    for row in sorted(rows, key=_best_first):
        table.add_row(
            row["label"] + (" *" if row.get("diverged") else ""),
            _percent(row[measure]) + _plus_minus(row[f"{measure}_std"], ".1%"),
            _percent(row["minimum"]),
            f"{row['relative']:.3f}" if row["relative"] is not None else "-",
            _points(row),
            f"{row['uploads']:.1f}",
            f"{row['gradient_steps']:.0f}",
        )
    return table


def scores_table(rows: list[dict[str, Any]]) -> Table:
    """Final scores of unlike tasks, each in its own unit."""
    scales: dict[str, set[Scale]] = {}  # of each task: several, if its metric is varied
    for row in rows:
        for task, words in row["metrics"].items():
            scales.setdefault(task, set()).add(Scale(**words))
    one = {task: next(iter(found)) for task, found in scales.items() if len(found) == 1}
    lower = [task for task, scale in one.items() if scale.better == "lower"]
    table = Table(
        Column("method", overflow="fold"),
        *(Column(f"{task}\n{one[task].title}" if task in one else task, justify="right") for task in scales),
        title="final score of each task",
        caption=f"mean over seeds{'; lower is better: ' if lower else ''}{', '.join(lower)}",
    )
    for row in sorted(rows, key=_best_first):
        table.add_row(row["label"], *(_score(row, task, named=task not in one) for task in scales))
    return table


def _score(row: dict[str, Any], task: str, named: bool) -> str:
    """In its unit; with the metric's name where the head of the column cannot have it."""
    if task not in row["metrics"]:
        return "-"
    scale = Scale(**row["metrics"][task])
    shown = scale.show(row["tasks"].get(task), unit=named)
    return f"{shown} {scale.name}" if named else shown


def _best_first(row: dict[str, Any]) -> float:
    return -(row[row["measure"]] or 0.0)


def _final(figures: dict[str, Any]) -> str:
    """Over which rounds a final accuracy is taken."""
    rounds = figures["final_rounds"]
    return f"mean over the last {rounds} rounds" if rounds > 1 else "of the last round"


def _points(row: dict[str, Any]) -> str:
    if row["baseline"] or row["difference"] is None:
        return "-"
    half = row["difference_half_width"]
    return f"{100 * row['difference']:+.1f}" + _plus_minus(None if half is None else 100 * half, ".1f")


def _plus_minus(value: float | None, form: str) -> str:
    return "" if value is None else f" ± {value:{form}}"


def _seeds(rows: list[dict[str, Any]]) -> str:
    return ", ".join(str(seed) for seed in sorted({seed for row in rows for seed in row["seeds"]}))


def rows_table(rows: list[dict[str, Any]], title: str) -> Table:
    """Dictionaries with the same keys as a table; numbers to four digits."""
    columns = list(rows[0]) if rows else ["nobody"]
    cells = [[f"{v:.4g}" if isinstance(v, float) else v for v in row.values()] for row in rows]
    return simple_table(columns, cells, title)


def csv_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Dictionaries with the same keys as CSV, header first."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().splitlines()


def simple_table(columns: Sequence[str], rows: Sequence[Iterable[object]], title: str | None = None) -> Table:
    first = Column(columns[0], overflow="fold", min_width=12)
    table = Table(first, *columns[1:], title=title)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    return table


def explanation_tables(explanation: "Explanation", most: int = 12) -> list[Table]:
    """What each task gets and at what variance, the clients that are most likely to train, the forecasts."""
    table = explanation.table()
    tables = [_by_task(explanation, table), _by_client(explanation, most)]
    if table["forecasts"] is not None:
        tables.append(_forecasts(table["forecasts"]["tasks"]))
    return tables


def _by_task(explanation: "Explanation", table: dict[str, Any]) -> Table:
    processors, jobs = explanation.population.total_processors, table["jobs"]
    stale = explanation.fresh_variance is not None
    heads = ("jobs", "variance", "Random's", "optimum", "ratio", *(["without h"] if stale else []))
    note = "; all are of G - beta h, for updates G and old ones h; without h: of G" if stale else ""
    by_task = Table(
        Column("task", no_wrap=True),
        *(Column(head, justify="right") for head in heads),
        title=f"{explanation.method}, round {explanation.round}: {jobs:.1f} jobs of {processors} processors "
        f"({jobs / max(processors, 1):.1%})",
        caption="variance of the step / learning rate squared, at the probabilities of the method, of Random "
        f"and with the least sum over tasks; ratio: to Random's; -: not unbiased{note}",
    )
    for name, row in table["tasks"].items():
        by_task.add_row(name, f"{row['expected_jobs']:.2f}", *_variances(row))
    by_task.add_section()
    sums = {
        "variance": explanation.variance.sum(),
        "random_variance": explanation.random_variance.sum(),
        "least_variance": explanation.least_variance.sum(),
        "fresh_variance": None if explanation.fresh_variance is None else explanation.fresh_variance.sum(),
    }
    by_task.add_row("all", f"{jobs:.2f}", *_variances(sums))
    return by_task


def _variances(row: dict[str, Any]) -> list[str]:
    """A method's variance, Random's, the least, the ratio, and without stale updates, if it has any; - where
    the step is not unbiased."""
    mine, random, least, fresh = (
        row[key] for key in ("variance", "random_variance", "least_variance", "fresh_variance")
    )
    known = mine is not None and math.isfinite(mine)
    ratio = f"{mine / random:.1%}" if known and random else "-"
    without = [] if fresh is None else [f"{fresh:.4g}" if math.isfinite(fresh) else "-"]
    return [f"{mine:.4g}" if known else "-", f"{random:.4g}", f"{least:.4g}", ratio, *without]


def _by_client(explanation: "Explanation", most: int) -> Table:
    people = explanation.population
    total = explanation.probability.sum(1)
    order = sorted(range(people.clients), key=lambda i: -total[i])[:most]
    saturated = int(explanation.saturated.sum())
    heads = ("processors", *(f"p {name}" for name in explanation.tasks), "total", "jobs", "points")
    by_client = Table(
        Column("client", no_wrap=True),
        *(Column(head, justify="right") for head in heads),
        title=f"most likely clients; {saturated} saturated (*, at the bound)",
    )
    for i in order:
        by_client.add_row(
            f"{i}{' *' if explanation.saturated[i] else ''}",
            str(explanation.processors[i]),
            *(f"{p:.3f}" for p in explanation.probability[i]),
            f"{total[i]:.3f}",
            f"{explanation.expected[i].sum():.2f}",
            str(int(people.sizes[i].sum())),
        )
    return by_client


def _forecasts(tasks: dict[str, dict[str, Any]]) -> Table:
    """Beside the truth, which the simulation knows."""
    cosines = any(row["cosine"] for row in tasks.values())
    heads = ["pairs", "known", "norms off", "if known", "correlation"]
    heads += ["with h", "cosines", "true", "off"] if cosines else []
    table = Table(
        Column("task", no_wrap=True),
        *(Column(head, justify="right") for head in heads),
        title="forecasts of updates beside what clients would send",
        caption="known: pairs that something has been seen of; norms off: by this factor, root mean square "
        "of logs; correlation: of logs"
        + ("; cosines: with the kept update h, means and root mean square error" if cosines else ""),
    )
    for name, row in tasks.items():
        norm, cosine = row["norm"], row["cosine"] or {}
        cells = [
            str(norm["pairs"]),
            str(norm["known"]),
            *map(_factor, (norm["factor"], norm["factor_known"])),
        ]
        cells.append(_cell(norm["correlation"]))
        if cosines:
            cells.append(str(cosine.get("pairs", 0)))
            cells += [_cell(cosine.get(key)) for key in ("forecast", "true", "error")]
        table.add_row(name, *cells)
    return table


def _factor(value: float | None) -> str:
    return "-" if value is None else f"x{value:.2f}"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
