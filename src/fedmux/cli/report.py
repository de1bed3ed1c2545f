"""The verb that writes a page about runs."""

from pathlib import Path
from typing import Annotated

import typer

from fedmux.cli.options import Quiet
from fedmux.cli.speech import Speech, notice
from fedmux.errors import FedmuxError


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Runs, comparisons, or folders of them.", metavar="RUN...")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Page to write.")] = Path("report.html"),
    png: Annotated[
        Path | None, typer.Option(help="Folder for every chart as a picture, for a paper.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    quiet: Quiet = False,
) -> None:
    """Write one page about runs: tables, charts, configuration. It opens without a network."""
    from fedmux.report.page import write, write_pictures
    from fedmux.runs.history import DAMAGED, find

    _check(runs, output, png)
    histories = find(runs)
    if not any(history.metrics for history in histories):
        problem = next((f": {h.path} {h.problem}" for h in histories if h.state == DAMAGED), "")
        raise FedmuxError(f"{', '.join(map(str, runs))}: no run with a finished round{problem}")
    write(
        histories, output, title or " and ".join(dict.fromkeys(history.name for history in histories))[:120]
    )
    pictures = write_pictures(histories, png) if png else []
    for history in histories:
        if history.problem:
            notice(f"warning: {history.path}: damaged: {history.problem}")
    lines = [f"report: {output} ({len(histories)} run{'s' * (len(histories) > 1)})"]
    lines += [f"pictures: {len(pictures)} in {png}"] if png else []
    Speech(quiet=quiet).result(None, lambda: lines)


def _check(runs: list[Path], output: Path, png: Path | None) -> None:
    for path in runs:
        if not path.exists():
            raise FedmuxError(f"{path}: no such folder; `fedmux list` shows the runs in runs/")
    if png and png.exists() and not png.is_dir():
        raise FedmuxError(f"--png {png}: is a file; name a folder for the pictures")
    if output.is_dir():
        raise FedmuxError(f"{output}: is a folder; name a file, such as {output / 'report.html'}")
    if not output.absolute().parent.is_dir():
        raise FedmuxError(f"{output}: there is no folder {output.parent}; make it first")
