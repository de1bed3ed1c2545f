"""The verbs that show what has been trained."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmux.cli.options import Json
from fedmux.cli.speech import Speech, notice
from fedmux.errors import FedmuxError

if TYPE_CHECKING:
    from rich.table import Table

    from fedmux.comparison.folder import Comparison
    from fedmux.runs.survey import Survey


def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look in.")] = Path("runs"), as_json: Json = False
) -> None:
    """Runs in a folder, newest last."""
    from fedmux.runs.reading import Run
    from fedmux.runs.survey import Survey

    if not folder.is_dir():
        raise FedmuxError(f"{folder}: no such folder; `fedmux run` makes runs/")
    begun = [path for path in map(Path, (inside[0] for inside in os.walk(folder))) if Run.is_at(path)]
    surveys = [Survey.of(path, whole=False) for path in sorted(begun, key=_begun)]
    rows = [_overview(survey) for survey in surveys]

    def shown() -> "Iterator[Table | str]":
        from fedmux.console.tables import simple_table

        columns = ("run", "method", "seed", "rounds", "state", "accuracy")
        lines = [{**row, "state": _state(survey)} for row, survey in zip(rows, surveys)]
        yield simple_table(columns, [[line[column] for column in columns] for line in lines])

    Speech(as_json=as_json).result(rows, shown)


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison.", metavar="RUN")],
    as_json: Json = False,
) -> None:
    """What a run or a comparison ended with, or how far it is and why it stopped."""
    from fedmux.runs.checks import summary_problem
    from fedmux.runs.compared import is_comparison
    from fedmux.runs.reading import Run
    from fedmux.runs.survey import Survey

    speech = Speech(as_json=as_json)
    if is_comparison(folder):
        from fedmux.comparison.folder import Comparison

        _show_comparison(Comparison.open(folder), speech)
        return
    survey = Survey.of(Run(folder).path)
    whole = survey.summary is not None and not summary_problem(survey.summary)
    final = survey.summary if whole else None
    speech.result(final or _overview(survey), lambda: _finished(final) if final else _unfinished(survey))
    for problem in survey.problems:
        notice(f"damaged: {folder / problem}")


def _show_comparison(comparison: "Comparison", speech: Speech) -> None:
    rows, lines = comparison.results(), comparison.states()
    if not rows and speech.as_json:
        raise FedmuxError(f"{comparison.path}: none of its runs is finished; {lines[0]}")
    speech.result(rows, lambda: _comparison(comparison, rows, lines))


def _comparison(
    comparison: "Comparison", rows: list[dict[str, Any]], lines: list[str]
) -> "Iterator[Table | str]":
    from fedmux.console.tables import comparison_tables

    if rows:
        yield from comparison_tables(rows, comparison.path.name)
    yield from lines
    if lines:
        yield f"`fedmux resume {comparison.path}` continues it"


def _finished(summary: dict[str, Any]) -> "Iterator[Table | str]":
    from fedmux.console.tables import run_table

    yield run_table(summary)


def _unfinished(survey: "Survey") -> "Iterator[Table | str]":
    from fedmux.runs.survey import paused

    yield f"{survey.path}: {survey.progress}; accuracy {_overview(survey)['accuracy']}"
    yield from paused(survey.rounds)
    if survey.state.again:
        yield survey.state.again


def _overview(survey: "Survey") -> dict[str, Any]:
    from fedmux.runs import finals
    from fedmux.runs.scale import ACCURACY, over_tasks_of, scales_of
    from fedmux.runs.survey import paused

    table, summary, rounds = survey.table, survey.summary, survey.rounds
    method = table.get("method", "-")
    measure = over_tasks_of(scales_of(table).values())
    scored = (one.progress.mean for one in reversed(rounds) if one.progress and one.measure == measure)
    final = finals.overall(summary) if measure in (summary or {}) else None
    overall = next(scored, None) if final is None else final
    last = rounds[-1].round if rounds else int(finals.number(summary, "rounds") or 0)
    return {
        "run": str(survey.path),
        "method": method.get("name", "-") if isinstance(method, dict) else method,
        "seed": table.get("seed", "-"),
        "rounds": f"{last}/{table.get('rounds', '?')}",
        "state": survey.state.name,
        "reason": survey.state.reason,
        "accuracy": "-" if overall is None else f"{overall:.1%}{'' if measure == ACCURACY else ' progress'}",
        "paused": paused(rounds),
        "again": survey.state.again,
        "damaged": survey.problems,
    }


def _state(survey: "Survey") -> str:
    """For a row of a table."""
    parts = [str(survey.state)]
    diverged = (survey.summary or {}).get("diverged")
    if isinstance(diverged, dict) and diverged:
        parts.append(f"diverged: {', '.join(diverged)}")
    if survey.problem:
        parts.append(f"damaged: {survey.problem}")
    return "; ".join(parts)


def _begun(path: Path) -> float:
    """When a run was begun: its first files are written then."""
    from fedmux.runs.layout import ENVIRONMENT, EXPERIMENT, METRICS

    files = [path / name for name in (EXPERIMENT, ENVIRONMENT, METRICS)]
    return next((file.stat().st_mtime for file in files if file.exists()), 0.0)
