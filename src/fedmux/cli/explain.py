"""The verbs that explain methods: which there are, and whom one picks."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmux.cli.options import File, Json, Overrides


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
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from fedmux.console.tables import output, simple_table

    for row in rows:
        row["options"] = "\n".join(f"{key} = {value}" for key, value in row["options"].items())
    output.print(simple_table(("method", "what it does", "options", "paper"), [row.values() for row in rows]))


def explain(
    experiment: File,
    picture: Annotated[Path | None, typer.Option("-o", "--output", help="Picture to write (PNG).")] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Show whom a method picks in the first round, and why."""
    from fedmux.console.tables import explanation_tables, output
    from fedmux.experiment import Experiment
    from fedmux.explain import explain
    from fedmux.report.charts import check_picture, probabilities, save

    described = Experiment.read(experiment, overrides or [])
    picture = picture or Path(f"{described.name}-explained.png")
    check_picture(picture)
    explanation = explain(described)
    if as_json:
        typer.echo(json.dumps(explanation.table(), indent=1))
    else:
        for table in explanation_tables(explanation):
            output.print(table)
    save(probabilities(explanation), picture)
    typer.echo(f"picture:    {picture}", err=as_json)
