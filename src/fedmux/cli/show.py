"""The verbs that show what has been trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmux.cli.options import Json
from fedmux.cli.speech import Speech
from fedmux.errors import FedmuxError
from fedmux.runs import finals
from fedmux.runs.scale import ACCURACY, over_tasks_of, scales_of

if TYPE_CHECKING:
    from rich.table import Table

    from fedmux.runs.reading import Run


def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look in.")] = Path("runs"), as_json: Json = False
) -> None:
    """Runs in a folder, newest last."""
    from fedmux.runs.layout import EXPERIMENT
    from fedmux.runs.reading import Run

    if not folder.is_dir():
        raise FedmuxError(f"{folder}: no such folder; `fedmux run` makes runs/")
    begun = (path for path in folder.rglob(EXPERIMENT) if Run.is_at(path.parent))
    rows = [_overview(Run(path.parent)) for path in sorted(begun, key=lambda path: path.stat().st_mtime)]

    def shown() -> "Iterator[Table | str]":
        from fedmux.console.tables import simple_table

        columns = ("run", "method", "seed", "rounds", "state", "accuracy")
        yield simple_table(columns, [[row[column] for column in columns] for row in rows])

    Speech(as_json=as_json).result(rows, shown)


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison.", metavar="RUN")],
    as_json: Json = False,
) -> None:
    """What a run or a comparison ended with, or how far it is."""
    from fedmux.runs.compared import is_comparison
    from fedmux.runs.reading import Run

    speech = Speech(as_json=as_json)
    if is_comparison(folder):
        from fedmux.comparison.folder import Comparison

        rows = Comparison.open(folder).results()
        if not rows:
            raise FedmuxError(f"{folder}: none of its runs is finished; `fedmux resume {folder}` continues")
        speech.result(rows, lambda: _comparison(rows, folder.name))
        return
    run = Run(folder)
    figures = run.summary if run.finished else _overview(run)
    speech.result(figures, lambda: _finished(figures) if run.finished else _unfinished(folder, figures))


def _comparison(rows: list[dict[str, Any]], name: str) -> "Iterator[Table | str]":
    from fedmux.console.tables import comparison_tables

    yield from comparison_tables(rows, name)


def _finished(summary: dict[str, Any]) -> "Iterator[Table | str]":
    from fedmux.console.tables import run_table

    yield run_table(summary)


def _unfinished(folder: Path, overview: dict[str, Any]) -> "Iterator[Table | str]":
    yield f"{folder}: {overview['rounds']} rounds, accuracy {overview['accuracy']}, {overview['state']}"
    yield f"`fedmux resume {folder}` continues it"


def _overview(run: "Run") -> dict[str, Any]:
    table, summary = run.table, run.summary if run.finished else None
    rounds, overall = (summary["rounds"], finals.overall(summary)) if summary else _newest(run)
    plain = over_tasks_of(scales_of(table).values()) == ACCURACY
    return {
        "run": str(run.path),
        "method": table["method"]["name"] if isinstance(table["method"], dict) else table["method"],
        "seed": table["seed"],
        "rounds": f"{rounds}/{table['rounds']}",
        "state": _state(summary),
        "accuracy": "-" if overall is None else f"{overall:.1%}{'' if plain else ' progress'}",
    }


def _newest(run: "Run") -> tuple[int, float | None]:
    """The last round and the last mean over tasks, which may be of an earlier one."""
    from fedmux.runs.reading import newest_rounds

    last = next(newest_rounds(run.path), None)
    scored = (entry.progress.mean for entry in newest_rounds(run.path) if entry.progress)
    return 0 if last is None else last.round, next(scored, None)


def _state(summary: dict[str, Any] | None) -> str:
    if summary is None:
        return "not finished"
    diverged = summary.get("diverged")
    return f"finished; diverged: {', '.join(diverged)}" if diverged else "finished"
