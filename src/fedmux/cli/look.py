"""The verbs that look at what has been trained."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmux.cli.options import Json
from fedmux.errors import FedmuxError

if TYPE_CHECKING:
    from fedmux.runs.reading import Run


def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look in.")] = Path("runs"), as_json: Json = False
) -> None:
    """Runs in a folder, newest last."""
    from fedmux.runs.reading import Run

    if not folder.is_dir():
        raise FedmuxError(f"{folder}: no such folder; `fedmux run` makes runs/")
    rows = []
    for path in sorted(folder.rglob("experiment.toml"), key=lambda path: path.stat().st_mtime):
        if Run.is_at(path.parent):
            rows.append(_overview(Run(path.parent)))
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from fedmux.console.tables import output, simple_table

    columns = ("run", "method", "seed", "rounds", "state", "accuracy")
    output.print(simple_table(columns, [[row[column] for column in columns] for row in rows]))


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison.", metavar="RUN")],
    as_json: Json = False,
) -> None:
    """What a run or a comparison ended with, or how far it is."""
    from fedmux.console.tables import comparison_table, output, run_table
    from fedmux.runs.reading import Run

    if (folder / "comparison.toml").exists():
        from fedmux.comparison.folder import Comparison

        rows = Comparison.open(folder).results()
        if not rows:
            raise FedmuxError(f"{folder}: none of its runs is finished; `fedmux resume {folder}` continues")
        if as_json:
            typer.echo(json.dumps(rows, indent=1))
        else:
            output.print(comparison_table(rows, folder.name))
        return
    run = Run(folder)
    if as_json:
        typer.echo(json.dumps(run.summary if run.finished else _overview(run), indent=1))
    elif run.finished:
        output.print(run_table(run.summary))
    else:
        overview = _overview(run)
        output.print(
            f"{folder}: {overview['rounds']} rounds, accuracy {overview['accuracy']}, {overview['state']}"
        )
        output.print(f"`fedmux resume {folder}` continues it")


def _state(run: "Run") -> str:
    if not run.finished:
        return "not finished"
    diverged = run.summary.get("diverged")
    return f"finished; diverged: {', '.join(diverged)}" if diverged else "finished"


def _overview(run: "Run") -> dict[str, Any]:
    table, metrics = run.table, run.metrics
    scored = [entry["accuracy"]["mean"] for entry in metrics if "accuracy" in entry]
    if run.finished:
        scored = [run.summary["accuracy"]["mean"]]
    method = table["method"]
    return {
        "run": str(run.path),
        "method": method["name"] if isinstance(method, dict) else method,
        "seed": table["seed"],
        "rounds": f"{metrics[-1]['round'] if metrics else 0}/{table['rounds']}",
        "state": _state(run),
        "accuracy": f"{scored[-1]:.1%}" if scored else "-",
    }
