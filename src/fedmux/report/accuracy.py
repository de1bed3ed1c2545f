"""What a run and a comparison leave for the eye when they end: accuracy.png, report.html."""

from collections.abc import Mapping
from pathlib import Path

from fedmux.report.charts import method_accuracy, save, task_accuracy
from fedmux.report.page import write
from fedmux.runs.history import History, find
from fedmux.runs.reading import Run

PICTURE, PAGE = "accuracy.png", "report.html"


def draw_run(run: Run) -> Path:
    """The picture: accuracy of each task over rounds."""
    summary, picture = run.summary, run.path / PICTURE
    save(task_accuracy(run.metrics, f"{summary['name']}: {summary['method']}"), picture)
    return picture


def draw_comparison(folder: Path, name: str, runs: Mapping[str, Mapping[int, Run]]) -> tuple[Path, Path]:
    """The picture, accuracy of each label's finished runs over rounds, and the report of all runs."""
    read = {
        label: [History.read(run.path).metrics for run in found.values()] for label, found in runs.items()
    }
    curves = {label: [rounds for rounds in found if rounds] for label, found in read.items() if any(found)}
    picture, page = folder / PICTURE, folder / PAGE
    save(method_accuracy(curves, f"{name}: accuracy over rounds"), picture)
    write(find([folder]), page, name)
    return picture, page
