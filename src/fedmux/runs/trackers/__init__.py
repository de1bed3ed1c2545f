"""Trackers: observers that write a run's figures for other tools, one module per tool."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedmux.errors import FedmuxError
from fedmux.runs.trackers.csv import CSV
from fedmux.runs.trackers.mlflow import MLflow
from fedmux.runs.trackers.tensorboard import TensorBoard
from fedmux.runs.trackers.tracker import Tracker
from fedmux.runs.trackers.wandb import WandB

__all__ = ["CSV", "TRACKERS", "MLflow", "TensorBoard", "Tracker", "WandB", "by_name"]

TRACKERS: dict[str, type[Tracker]] = {kind.name: kind for kind in (CSV, MLflow, TensorBoard, WandB)}


@contextmanager
def by_name(names: str, run: str | Path) -> Iterator[list[Tracker]]:
    """Trackers by comma-separated names; closed in any case at the end."""
    wanted = dict.fromkeys(name.strip() for name in names.split(",") if name.strip())
    if unknown := [name for name in wanted if name not in TRACKERS]:
        raise FedmuxError(f'--log "{unknown[0]}" is not known; choose from {", ".join(TRACKERS)}')
    with ExitStack() as closing:
        yield [closing.enter_context(TRACKERS[name](run)) for name in wanted]
