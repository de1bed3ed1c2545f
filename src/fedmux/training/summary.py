"""The summary of a run: final accuracies, rounds to thresholds, costs, clients' privacy loss."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedmux.experiment import Experiment
from fedmux.methods import options
from fedmux.population import Ints
from fedmux.runs.layout import RELEASES
from fedmux.runs.reading import Run, read_releases
from fedmux.runs.rounds import OverTasks, Round, TaskRound
from fedmux.runs.statistics import FINAL_ROUNDS, final_accuracy
from fedmux.tasks.task import Task
from fedmux.training.setting import Setting
from fedmux.training.state import State

COSTS = ("jobs", "uploads", "reports", "upload_bytes", "gradient_steps", "wasted_steps", "forward_passes")


def finished(
    experiment: Experiment, setting: Setting, folder: Path, state: State, reached: bool
) -> dict[str, Any]:
    """The whole summary of a finished run, from its folder; `reached`: whether it hit the target accuracy."""
    run = Run(folder)
    paused = {each.task: asdict(each) for each in state.watch.paused.values()}
    return {
        **summarise(experiment, run.metrics, reached),
        **({"diverged": paused} if paused else {}),
        **privacy_loss(setting.tasks, run),
        **setting.summary(),
    }


def summarise(experiment: Experiment, rounds: Sequence[Round], reached: bool) -> dict[str, Any]:
    """Final accuracies, rounds to thresholds, total costs."""
    names, last = [task.name for task in experiment.tasks], rounds[-1]
    evaluated = [entry for entry in rounds if entry.accuracy is not None]
    curves = {name: _curve(evaluated, name) for name in names}
    accuracy = {
        name: final_accuracy([(number, score) for number, score, _ in curve], last.round)
        for name, curve in curves.items()
        if curve
    }
    work = [entry.tasks[name] for entry in rounds if entry.round for name in names]
    means = [(entry.round, entry.accuracy.mean) for entry in evaluated if entry.accuracy is not None]
    return {
        "name": experiment.name,
        "method": options(experiment.method)["name"],
        "seed": experiment.seed,
        "rounds": last.round,
        "final_rounds": min(FINAL_ROUNDS, last.round),
        "stopped_at_target": reached,
        "accuracy": asdict(OverTasks.of(np.array(list(accuracy.values())))),
        "tasks": {
            name: {
                "accuracy": accuracy[name],
                "last_accuracy": curve[-1][1],
                "last_loss": curve[-1][2],
                "rounds_to": _rounds_to(experiment, [(number, score) for number, score, _ in curve]),
                **({"diverged": paused} if (paused := last.tasks[name].diverged) else {}),
            }
            for name, curve in curves.items()
            if curve
        },
        "rounds_to": _rounds_to(experiment, means),
        "totals": {cost: sum(getattr(entry, cost) or 0 for entry in work) for cost in COSTS},
        "dropped": sum(entry.dropped or 0 for entry in rounds),
        "server_bytes": sum(last.tasks[name].server_bytes or 0 for name in names),
        "seconds": last.seconds,
    }


def _curve(evaluated: Sequence[Round], task: str) -> list[tuple[int, float, float]]:
    """(round, accuracy, loss) of a task at the evaluations that include it."""
    seen = [(entry.round, entry.tasks.get(task, TaskRound())) for entry in evaluated]
    return [
        (number, values.accuracy, values.loss)
        for number, values in seen
        if values.accuracy is not None and values.loss is not None
    ]


def _rounds_to(experiment: Experiment, curve: list[tuple[int, float]]) -> dict[str, int | None]:
    """First evaluated round that reached each threshold; None if none did."""
    return {
        f"{threshold:g}": next((number for number, accuracy in curve if accuracy >= threshold), None)
        for threshold in experiment.evaluation.thresholds
    }


def privacy_loss(tasks: Sequence[Task], run: Run) -> dict[str, Any]:
    """Privacy loss of the most frequently drawn client, for each task with clipping or noise."""
    reported = {}
    for s, task in enumerate(tasks):
        if task.privacy is not None:
            most = int(releases(run, s).max(initial=0))
            epsilon = task.privacy.epsilon(most)
            reported[task.name] = {**task.privacy.model_dump(), "releases": most, "epsilon": epsilon}
    return {"privacy": reported} if reported else {}


def releases(run: Run, task: int) -> Ints:
    """N: updates requested from each client for a task. Rounds that real clients repeat count again."""
    if (file := run.path / RELEASES).exists():
        counted: Ints = read_releases(file)[:, task]
        return counted
    jobs = run.allocation
    return np.bincount(jobs["client"][jobs["task"] == task])
