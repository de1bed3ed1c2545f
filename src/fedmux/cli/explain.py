"""The verbs that explain methods: which there are, and which clients one picks."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmux.cli.options import File, Json, Overrides
from fedmux.cli.speech import Speech, notice
from fedmux.errors import Interrupted

if TYPE_CHECKING:
    from rich.table import Table

    from fedmux.experiment import Experiment
    from fedmux.explain import Explanation


def methods(as_json: Json = False) -> None:
    """Methods by name, with their options and papers."""
    from fedmux.methods import registry

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "summary": (method.__doc__ or "").splitlines()[0],
            "options": {key: field.default for key, field in method.model_fields.items()},
            "paper": method.paper,
        }
        for name, method in registry().items()
    ]

    def shown() -> "Iterator[Table]":
        from fedmux.console.tables import simple_table

        heads = ("method", "what it does", "options", "paper")
        yield simple_table(heads, [{**row, "options": _lines(row["options"])}.values() for row in rows])

    Speech(as_json=as_json).result(rows, shown)


def _lines(options: dict[str, Any]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in options.items())


def explain(
    experiment: File,
    picture: Annotated[Path | None, typer.Option("-o", "--output", help="Picture to write (PNG).")] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Train so many rounds, then explain the next.")] = 0,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Show which clients a method picks in a round, the first or a later one, and why."""
    from fedmux.console.tables import explanation_tables
    from fedmux.experiment import Experiment
    from fedmux.report.charts import check_picture, explained, save

    described = Experiment.read(experiment, overrides or [])
    picture = picture or Path(f"{described.name}-explained.png")
    check_picture(picture)
    explanation = _explanation(described, rounds, as_json)
    Speech(as_json=as_json).result(explanation.table(), lambda: explanation_tables(explanation))
    replaced = " (in place of the one that was there)" if picture.exists() else ""
    save(explained(explanation), picture)
    typer.echo(f"picture:    {picture}{replaced}", err=as_json)


def _explanation(experiment: "Experiment", rounds: int, quiet: bool) -> "Explanation":
    from fedmux.console.progress import RoundProgress
    from fedmux.explain import explain

    try:
        if not rounds:
            return explain(experiment, notice=notice)
        with RoundProgress(rounds, quiet=quiet, scales=experiment.scales) as progress:
            return explain(experiment, rounds, observers=[progress], notice=notice)
    except KeyboardInterrupt:
        raise Interrupted("stopped; explaining leaves nothing behind") from None
