"""The final figures of a run, read from its summary: anything missing or damaged reads as None."""

from typing import Any

from fedmux.runs.rounds import figure

Summary = dict[str, Any] | None


def number(value: Any, *keys: str) -> float | None:
    """The finite number under nested keys, None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    found = figure(value)
    return None if found is None else float(found)


def by_accuracy(summary: Summary) -> bool:
    """Whether all its tasks are scored by accuracy."""
    return isinstance(summary, dict) and "accuracy" in summary


def overall(summary: Summary, which: str = "mean") -> float | None:
    """Progress over the tasks (accuracy, where all are scored by it): mean, minimum, variance, cosine."""
    return number(summary, "accuracy" if by_accuracy(summary) else "progress", which)


def score(summary: Summary, task: str) -> float | None:
    """Of a task, in its own unit."""
    found = number(summary, "tasks", task, "accuracy")
    return number(summary, "tasks", task, "score") if found is None else found


def progress(summary: Summary, task: str) -> float | None:
    found = number(summary, "tasks", task, "progress")
    return number(summary, "tasks", task, "accuracy") if found is None else found
