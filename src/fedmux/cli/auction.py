"""The verb that recruits users."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmux.cli.options import Json
from fedmux.cli.speech import Speech

if TYPE_CHECKING:
    from rich.table import Table


def auction(
    bids: Annotated[Path, typer.Argument(help="CSV: a column for each task, a line for each user.")],
    budget: Annotated[float, typer.Option(help="For all tasks together; for posted-price the price.")],
    mechanism: Annotated[str, typer.Option(help="See docs/auctions.md.")] = "max-min-fair",
    compare: Annotated[bool, typer.Option("--compare", help="All mechanisms, over budgets.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print winners and payments as CSV.")] = False,
    picture: Annotated[Path | None, typer.Option("-o", "--output", help="Picture for --compare.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random-within-budget.")] = 0,
    as_json: Json = False,
) -> None:
    """Recruit users by auction: winners and payments."""
    from fedmux.console.tables import csv_lines, rows_table
    from fedmux.recruitment.bids import read_bids
    from fedmux.recruitment.report import budgets_compared, hold, winners

    users, tasks, offers = read_bids(bids)
    speech = Speech(as_json=as_json)
    if compare:
        from fedmux.report.charts import save, take_up

        rows = budgets_compared(offers, budget, seed)
        picture = picture or Path("auction.png")
        replaced = " (in place of the one that was there)" if picture.exists() else ""
        save(take_up(rows), picture)
        at_budget = [row for row in rows if row["budget"] == budget]
        table = rows_table(at_budget, f"take-up at a budget of {budget:g}")
        speech.result(rows, lambda: csv_lines(rows) if as_csv else [table])
        typer.echo(f"picture:    {picture}{replaced}", err=as_json or as_csv)
        return
    award = hold(offers, budget, mechanism, seed)
    rows = winners(award, users, tasks)
    totals: dict[str, Any] = {
        "mechanism": mechanism,
        "budget": budget,
        "paid": award.paid,
        "leftover": award.leftover,
        "take_up": dict(zip(tasks, award.take_up.tolist())),
    }

    def shown() -> "Iterator[Table | str]":
        yield rows_table(rows, f"{mechanism}: {len(rows)} winners")
        counts = ", ".join(f"{name} {number:.2f}" for name, number in totals["take_up"].items())
        spent = f" of {budget:g}" if award.budget is not None else ""
        yield f"take-up: {counts}; paid {award.paid:.4g}{spent}"

    speech.result({**totals, "winners": rows}, lambda: csv_lines(rows) if as_csv else shown())
