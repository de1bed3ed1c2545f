"""The verb that recruits users."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmux.cli.options import Json


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
    from fedmux.console import tables as terminal
    from fedmux.recruitment.bids import read_bids
    from fedmux.recruitment.report import budgets_compared, hold, winners

    users, tasks, offers = read_bids(bids)
    if compare:
        from fedmux.report.charts import save, take_up

        rows = budgets_compared(offers, budget, seed)
        picture = picture or Path("auction.png")
        save(take_up(rows), picture)
        at_budget = [row for row in rows if row["budget"] == budget]
        if as_json:
            typer.echo(json.dumps(rows, indent=1))
        elif as_csv:
            terminal.print_csv(rows)
        else:
            terminal.output.print(terminal.rows_table(at_budget, f"take-up at a budget of {budget:g}"))
        typer.echo(f"picture:    {picture}", err=as_json or as_csv)
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
    if as_json:
        typer.echo(json.dumps({**totals, "winners": rows}, indent=1))
    elif as_csv:
        terminal.print_csv(rows)
    else:
        terminal.output.print(terminal.rows_table(rows, f"{mechanism}: {len(rows)} winners"))
        counts = ", ".join(f"{name} {number:.2f}" for name, number in totals["take_up"].items())
        spent = f" of {budget:g}" if award.budget is not None else ""
        typer.echo(f"take-up: {counts}; paid {award.paid:.4g}{spent}")
