"""How a verb speaks: its result as tables or as JSON, remarks while it works, warnings."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from fedmux.cli.options import Json, Quiet

if TYPE_CHECKING:
    from rich.table import Table

Shown = Callable[[], "Iterable[Table | str]"]


@dataclass(frozen=True)
class Speech:
    """What the user wants to hear; a group of options for the verbs that train."""

    quiet: Quiet = False
    as_json: Json = False

    @property
    def silent(self) -> bool:
        """No progress, no remarks."""
        return self.quiet or self.as_json

    def result(self, value: Any, shown: Shown) -> None:
        """The value as JSON, or the tables and lines of `shown`, which are made only if they are printed."""
        if self.as_json:
            typer.echo(json.dumps(value, indent=1))
        elif not self.quiet:
            from fedmux.console.tables import output

            for part in shown():
                if isinstance(part, str):
                    typer.echo(part)
                else:
                    output.print(part)

    def remark(self, line: str) -> None:
        """On stderr, unless silent."""
        if not self.silent:
            notice(line)


def notice(line: str) -> None:
    """On stderr, whatever the options are."""
    typer.echo(line, err=True)
