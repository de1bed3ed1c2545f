"""The summary of a run: final scores, rounds to thresholds, costs, clients' privacy loss."""

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
from fedmux.runs.scale import Scale, over_tasks_of
from fedmux.runs.statistics import FINAL_ROUNDS, final
from fedmux.tasks.task import Task
from fedmux.training.setting import Setting
from fedmux.training.state import State

Curve = list[tuple[int, TaskRound]]  # of a task, by round
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
    """Final scores, rounds to thresholds, total costs."""
    names, last = [task.name for task in experiment.tasks], rounds[-1]
    curves = {name: found for name in names if (found := _curve(rounds, name))}
    work = [entry.tasks[name] for entry in rounds if entry.round for name in names]
    means = [(entry.round, entry.progress.mean) for entry in rounds if entry.progress is not None]
    return {
        "name": experiment.name,
        "method": options(experiment.method)["name"],
        "seed": experiment.seed,
        "rounds": last.round,
        "final_rounds": min(FINAL_ROUNDS, last.round),
        "stopped_at_target": reached,
        **_over_tasks(curves, last.round, over_tasks_of(experiment.scales.values())),
        "tasks": {
            name: {
                **_final(curve, last.round, experiment.scales[name]),
                "last_loss": curve[-1][1].loss,
                "rounds_to": _rounds_to(experiment, _progress(curve)),
                **({"diverged": paused} if (paused := last.tasks[name].diverged) else {}),
            }
            for name, curve in curves.items()
        },
        "rounds_to": _rounds_to(experiment, means),
        "totals": {cost: sum(getattr(entry, cost) or 0 for entry in work) for cost in COSTS},
        "dropped": sum(entry.dropped or 0 for entry in rounds),
        "server_bytes": sum(last.tasks[name].server_bytes or 0 for name in names),
        "seconds": last.seconds,
    }


def _curve(rounds: Sequence[Round], task: str) -> Curve:
    """A task at the evaluations that include it."""
    seen = [(entry.round, entry.of(task)) for entry in rounds]
    return [(number, found) for number, found in seen if found.score is not None and found.loss is not None]


def _progress(curve: Curve) -> list[tuple[int, float]]:
    return [(number, found.progress) for number, found in curve if found.progress is not None]


def _final(curve: Curve, rounds: int, scale: Scale) -> dict[str, Any]:
    """A task's final score, called by its name if that is accuracy."""
    last = curve[-1][1]
    score = final([(number, found.score) for number, found in curve if found.score is not None], rounds)
    progress = final(_progress(curve), rounds)
    if last.plain:
        return {"accuracy": score, "last_accuracy": last.score}
    words = scale.words()
    named = {"metric": words.pop("name"), **words}
    return {**named, "score": score, "last_score": last.score, "progress": progress}


def _over_tasks(curves: dict[str, Curve], rounds: int, measure: str) -> dict[str, Any]:
    """Final progress over the tasks; nothing if one has no target."""
    found = [final(_progress(curve), rounds) for curve in curves.values()]
    known = [value for value in found if value is not None]
    if not known or len(known) < len(found):
        return {}
    return {measure: asdict(OverTasks.of(np.array(known)))}


def _rounds_to(experiment: Experiment, curve: list[tuple[int, float]]) -> dict[str, int | None]:
    """First evaluated round that reached each threshold; None if none did."""
    return {
        f"{threshold:g}": next((number for number, value in curve if value >= threshold), None)
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
