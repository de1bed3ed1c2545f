"""Groups of options: typer sees their fields, a verb gets them as one value."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fedmux.cli import app
from fedmux.cli.options import Json, Quiet, grouped


@dataclass(frozen=True)
class Sizes:
    rounds: Annotated[int, typer.Option(help="How many.")] = 3
    quick: bool = False


@dataclass(frozen=True)
class Manner:
    quiet: Quiet = False
    as_json: Json = False


def test_a_verb_gets_its_groups_as_values_and_help_lists_their_options_in_their_place() -> None:
    given = []
    small = typer.Typer()

    @small.command()
    @grouped
    def verb(name: str, *, sizes: Sizes, last: int = 0, manner: Manner) -> None:
        """What it does."""
        given.append((name, sizes, last, manner))

    assert list(inspect.signature(verb).parameters) == ["name", "rounds", "quick", "last", "quiet", "as_json"]
    runner = CliRunner()
    assert runner.invoke(small, ["a", "--rounds", "5", "-q", "--last", "2"]).exit_code == 0
    assert runner.invoke(small, ["b", "--quick", "--json"]).exit_code == 0
    assert given == [
        ("a", Sizes(5), 2, Manner(quiet=True)),
        ("b", Sizes(quick=True), 0, Manner(as_json=True)),
    ]
    told = runner.invoke(small, ["--help"]).output
    assert "What it does." in told and "How many." in told
    assert told.index("--rounds") < told.index("--quick") < told.index("--last") < told.index("--json")


@pytest.mark.parametrize("verb", [command.callback for command in app.registered_commands])
def test_no_verb_has_more_than_ten_parameters(verb) -> None:
    own = inspect.signature(getattr(verb, "__wrapped__", verb), follow_wrapped=False)
    assert 1 <= len(own.parameters) <= 10
