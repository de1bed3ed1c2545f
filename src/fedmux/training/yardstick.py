"""How far each task has come: scores of unlike metrics on one scale, from the task's start to its target."""

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.fleet import Fleet
from fedmux.model import Model
from fedmux.population import Floats
from fedmux.runs.scale import CONSTANT, FIRST, Scale
from fedmux.tasks.task import Task


class Yardstick:
    """Knows where progress begins, separately for each part of the held-out points."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.starts: dict[str, list[float]] = {}  # of each task

    def lay(self, models: list[Model], part: str) -> None:
        """From the models before any training."""
        tasks = self.fleet.tasks
        if all(task.scale.plain for task in tasks):
            self.starts[part] = [0.0] * len(tasks)
            return
        scores = self.fleet.evaluate(models, part)
        for task, score, loss in zip(tasks, scores.score, scores.loss):
            if np.isnan(score) and np.isfinite(loss):
                raise FedmuxError(
                    f'task "{task.name}": {task.scale.name} is not defined on the {part} part, where '
                    "all targets are alike; hold out more points, or take another metric"
                )
        self.starts[part] = [_start(task, part, float(score)) for task, score in zip(tasks, scores.score)]

    def progress(self, scores: Floats, part: str) -> Floats:
        """S; NaN where a metric has no target."""
        found = [
            task.scale.progress(float(score), float(start))
            for task, score, start in zip(self.fleet.tasks, scores, self.starts[part])
        ]
        return np.array([np.nan if value is None else value for value in found])


def _start(task: Task, part: str, first: float) -> float:
    scale = task.scale
    if scale.start == CONSTANT:
        targets = (task.test if part == "test" else task.validation)[1].cpu().numpy()
        assert task.metric.constant is not None  # checked with the experiment
        start = task.metric.constant(targets)
    else:
        start = first if scale.start == FIRST else float(scale.start)
    _check(task.name, scale, part, start)
    return start


def _check(name: str, scale: Scale, part: str, start: float) -> None:
    """A start that is not finite is reported where all scores are."""
    if scale.target is not None and start == scale.target:
        raise FedmuxError(
            f'task "{name}": {scale.name} on the {part} part starts at its target, {start:g}, so there is no '
            "progress to measure; set metric.start to a score, or another target"
        )
    if scale.share and abs(start) > 1.5:
        raise FedmuxError(
            f'task "{name}": {scale.name} has the unit "%", so it should be a share from 0 to 1, and is '
            f"{start:g}; divide it by 100, or give another unit"
        )
