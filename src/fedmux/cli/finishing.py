"""What the verbs that train share: the progress of a comparison's runs, and how a run ends."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fedmux.cli.speech import Speech, notice
from fedmux.errors import FedmuxError, Interrupted

if TYPE_CHECKING:
    from rich.table import Table

    from fedmux.comparison.limits import Agreed
    from fedmux.comparison.scheduling import Progress, Schedule
    from fedmux.runs.reading import Run


def finish(run: "Run", speech: Speech) -> None:
    """The result of a run. A task that diverged is a warning; if all did, that is an error."""
    summary = run.summary
    failures: list[str] = []
    with collected(failures):
        speech.result({**summary, "folder": str(run.path)}, lambda: _shown(run))
    diverged = summary.get("diverged", {})
    if diverged and len(diverged) == len(summary["tasks"]):
        first = next(iter(diverged.values()))
        failures.append(
            f"{run.path}: every task has diverged, the first in round {first['round']}: {first['reason']}; "
            "lower learning_rate or set clip"
        )
    else:
        warn(
            f'task "{name}" diverged in round {found["round"]}: {found["reason"]}; its model is '
            f"that of round {found['model']}; lower learning_rate or set clip"
            for name, found in diverged.items()
        )
    report_failures(failures)


def _shown(run: "Run") -> "Iterator[Table | str]":
    from fedmux.console.tables import run_table
    from fedmux.report.accuracy import draw_run

    yield run_table(run.summary)
    yield f"run folder: {run.path}\npicture:    {draw_run(run)}"


def alone() -> None:
    """Refuses torchrun: a comparison starts its own processes."""
    from fedmux.distributed.team import from_environment

    if from_environment():
        raise FedmuxError("a comparison cannot be started by torchrun; its runs can")


def agreed(yes: bool) -> "Agreed":
    """Whether to start so many runs: asked on a terminal, otherwise only with --yes."""

    def ask(told: str) -> bool:
        terminal = sys.stdin.isatty() and sys.stderr.isatty()
        return yes or (terminal and typer.confirm(f"{told}; start them?", err=True))

    return ask


@contextmanager
def watched(schedule: "Schedule", speech: Speech, hint: str) -> "Iterator[Progress]":
    """Progress of a comparison's runs. Ctrl-C and SIGTERM stop them; the message says how to continue."""
    import signal

    from fedmux.console.progress import ComparisonProgress

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    comparison = schedule.comparison
    folders = {cell.name: comparison.folder(cell) for cell in comparison.asked}
    with ComparisonProgress(folders, schedule.rounds, speech.silent) as progress:
        try:
            yield progress
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; {hint}") from None


@contextmanager
def collected(failures: list[str]) -> Iterator[None]:
    """An error inside becomes one more failure, so that it hides no other."""
    try:
        yield
    except FedmuxError as error:
        if str(error) not in failures:
            failures.append(str(error))


def warn(lines: Iterable[str]) -> None:
    for line in lines:
        notice(f"warning: {line}")


def report_failures(failures: list[str]) -> None:
    if failures:
        raise FedmuxError("\n".join(failures))
