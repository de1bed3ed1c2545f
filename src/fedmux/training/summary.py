"""Figures over tasks, clients and rounds: what a round reports and what a run ends with."""

from typing import Any

import numpy as np

from fedmux.experiment import Experiment
from fedmux.methods import options
from fedmux.population import Floats
from fedmux.runs.layout import FINAL_ROUNDS
from fedmux.runs.statistics import final_accuracy


def across_tasks(accuracy: Floats) -> dict[str, float]:
    """Mean, minimum, variance and cosine similarity over tasks ([P2] Lemma 2: sum f / (sqrt(S) ||f||))."""
    norm = float(np.sqrt(len(accuracy)) * np.linalg.norm(accuracy))
    return {
        "mean": float(accuracy.mean()),
        "minimum": float(accuracy.min()),
        "variance": float(accuracy.var()),
        "cosine": float(accuracy.sum()) / norm if norm > 0 else 1.0,
    }


def client_distribution(accuracy: Floats) -> dict[str, float]:
    """How a model's accuracy is spread over clients; NaN entries do not have the task."""
    values = accuracy[np.isfinite(accuracy)]
    if len(values) == 0:
        return {}
    return {"mean": float(values.mean()), "std": float(values.std()), **distribution(values)}


def distribution(values: Floats) -> dict[str, float]:
    """Some quantiles."""
    names = ("minimum", "p10", "p25", "median", "p75", "p90", "maximum")
    return dict(zip(names, np.quantile(values, [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1]).tolist()))


def summarise(experiment: Experiment, metrics: list[dict[str, Any]], stopped: bool) -> dict[str, Any]:
    """What a run ends with: final accuracies, rounds to thresholds, totals of the costs."""
    evaluated = [entry for entry in metrics if "accuracy" in entry]
    rounds = metrics[-1]["round"]
    names = [task.name for task in experiment.tasks]
    curves = {name: _curve(evaluated, name) for name in names}
    accuracy = {
        name: final_accuracy([(number, score) for number, score, _ in curve], rounds)
        for name, curve in curves.items()
        if curve
    }
    costs = ("jobs", "uploads", "reports", "upload_bytes", "gradient_steps", "wasted_steps", "forward_passes")
    work = [entry["tasks"][name] for entry in metrics if entry["round"] for name in names]
    return {
        "name": experiment.name,
        "method": options(experiment.method)["name"],
        "seed": experiment.seed,
        "rounds": rounds,
        "final_rounds": min(FINAL_ROUNDS, rounds),
        "stopped_at_target": stopped,
        "accuracy": across_tasks(np.array(list(accuracy.values()))),
        "tasks": {
            name: {
                "accuracy": accuracy[name],
                "last_accuracy": curve[-1][1],
                "last_loss": curve[-1][2],
                "rounds_to": _rounds_to(experiment, [(number, score) for number, score, _ in curve]),
                **({"diverged": paused} if (paused := metrics[-1]["tasks"][name].get("diverged")) else {}),
            }
            for name, curve in curves.items()
            if curve
        },
        "rounds_to": _rounds_to(experiment, [(e["round"], e["accuracy"]["mean"]) for e in evaluated]),
        "totals": {cost: sum(entry.get(cost, 0) for entry in work) for cost in costs},
        "dropped": sum(entry.get("dropped", 0) for entry in metrics),
        "server_bytes": sum(metrics[-1]["tasks"][name].get("server_bytes", 0) for name in names),
        "seconds": metrics[-1]["seconds"],
    }


def _curve(evaluated: list[dict[str, Any]], task: str) -> list[tuple[int, float, float]]:
    """(round, accuracy, loss) of a task at the evaluations at which it was trained."""
    seen = [(entry["round"], entry["tasks"].get(task, {})) for entry in evaluated]
    return [(number, values["accuracy"], values["loss"]) for number, values in seen if "accuracy" in values]


def _rounds_to(experiment: Experiment, curve: list[tuple[int, float]]) -> dict[str, int | None]:
    """First evaluated round at each threshold; None if it was not reached."""
    return {
        f"{threshold:g}": next((number for number, accuracy in curve if accuracy >= threshold), None)
        for threshold in experiment.evaluation.thresholds
    }
