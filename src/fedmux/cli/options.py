"""What several verbs share: their options, and how a run ends."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmux.errors import FedmuxError, Interrupted

if TYPE_CHECKING:
    from fedmux.comparison.folder import Comparison
    from fedmux.runs.reading import Run

File = Annotated[Path, typer.Argument(help="Experiment file (TOML).", metavar="EXPERIMENT")]
Folder = Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write: new or empty.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file; repeatable."),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, or auto: a GPU if there is one.")]
Workers = Annotated[
    str | None, typer.Option(metavar="N|auto", help="Processes here; auto: one a core, or one a GPU.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, tables or pictures.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def finish(run: "Run", quiet: bool, as_json: bool) -> None:
    _show(run, quiet, as_json)
    summary = run.summary
    diverged = summary.get("diverged", {})
    if diverged and len(diverged) == len(summary["tasks"]):
        first = next(iter(diverged.values()))
        raise FedmuxError(
            f"{run.path}: every task has diverged, the first in round {first['round']}: {first['reason']}; "
            "lower learning_rate or set clip"
        )
    for name, told in diverged.items():
        notice(
            f'warning: task "{name}" diverged in round {told["round"]}: {told["reason"]}; its model is that '
            f"of round {told['model']}; lower learning_rate or set clip"
        )


def _show(run: "Run", quiet: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**run.summary, "folder": str(run.path)}, indent=1))
    elif not quiet:
        from fedmux.console.tables import output, run_table
        from fedmux.report.charts import save, task_accuracy

        summary = run.summary
        picture = run.path / "accuracy.png"
        save(
            task_accuracy(run.metrics, f"{summary['name']}: {summary['method']}"),
            picture,
        )
        output.print(run_table(summary))
        typer.echo(f"run folder: {run.path}\npicture:    {picture}")


def alone() -> None:
    """A comparison starts its own processes."""
    from fedmux.distributed.team import from_environment

    if from_environment():
        raise FedmuxError("a comparison cannot be started by torchrun; its runs can")


def run_comparison(comparison: "Comparison", parallel: int, quiet: bool, hint: str) -> list[str]:
    """Run what is not done, with progress; a line for each failure. Stopped, it says how to go on."""
    import signal

    from fedmux.console.progress import ComparisonProgress

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the runs, as Ctrl-C does
    folders = {cell.name: comparison.folder(cell) for cell in comparison.asked}
    rounds = comparison.asked[0].table["rounds"]
    with ComparisonProgress(folders, rounds, quiet) as progress:
        try:
            return comparison.run(parallel, progress)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; {hint}") from None


def notice(line: str) -> None:
    typer.echo(line, err=True)
