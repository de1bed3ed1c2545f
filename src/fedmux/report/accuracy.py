"""What a run and a comparison leave for the eye when they end: accuracy.png, report.html."""

from collections.abc import Callable, Mapping
from pathlib import Path

from fedmux.report.charts import method_accuracy, save, task_accuracy
from fedmux.report.page import write
from fedmux.runs.history import find
from fedmux.runs.reading import Run, read_rounds
from fedmux.runs.rounds import Round
from fedmux.runs.scale import scales_of

PICTURE, PAGE = "accuracy.png", "report.html"


def draw_run(run: Run) -> Path:
    """The picture: accuracy of each task over rounds."""
    summary, picture = run.summary, run.path / PICTURE
    title = f"{summary['name']}: {summary['method']}"
    save(task_accuracy(run.metrics, title, scales_of(run.table)), picture)
    return picture


def draw_comparison(
    folder: Path, name: str, runs: Mapping[str, Mapping[int, Run]], notice: Callable[[str], None]
) -> tuple[Path, Path]:
    """The picture, accuracy of each label's finished runs over rounds, and the report of all runs."""

    def readable(run: Run) -> list[Round]:
        rounds, problem = read_rounds(run.path)
        if problem:
            notice(f"warning: {problem}; picture and report have the rounds before it")
        return rounds

    curves = {label: [readable(run) for run in found.values()] for label, found in runs.items() if found}
    picture, page = folder / PICTURE, folder / PAGE
    save(method_accuracy(curves, f"{name}: mean over tasks"), picture)
    write(find([folder]), page, name)
    return picture, page
