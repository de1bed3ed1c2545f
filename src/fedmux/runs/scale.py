"""What a task's score means: its unit, which way is better, and how far towards its target it is.

Scores of unlike tasks cannot be averaged. Their progress can: 0 where the task began, 1 at its target,

    progress = (score - start) / (target - start)

For a metric of which less is better the target lies below the start, so the same formula serves. Accuracy
goes from 0 to 1: its progress is the accuracy itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Better = Literal["higher", "lower"]
PERCENT = "%"  # the unit of shares: 0.5 is shown as 50.0 %
FIRST = "first"  # a start: the score before any training
CONSTANT = "constant"  # a start: what the best constant prediction scores
ACCURACY, PROGRESS = "accuracy", "progress"  # also what figures over tasks are called


@dataclass(frozen=True)
class Scale:
    """How to read the scores of a task."""

    name: str = ACCURACY
    unit: str = PERCENT
    better: Better = "higher"
    start: float | str = 0.0  # a score, FIRST or CONSTANT
    target: float | None = 1.0  # None: nobody has said what is perfect, so there is no progress

    @property
    def plain(self) -> bool:
        """Whether the score is an accuracy and its own progress."""
        return self.name == ACCURACY and self.start == 0 and self.target == 1

    @property
    def share(self) -> bool:
        return self.unit == PERCENT

    @property
    def title(self) -> str:
        """For a column or an axis: the name, with the unit where figures do not show it."""
        return f"{self.name} ({self.unit})" if self.unit and not self.share else self.name

    def words(self) -> dict[str, str]:
        """What a reader has to know, as JSON values."""
        return {"name": self.name, "unit": self.unit, "better": self.better}

    def show(self, score: float | None, unit: bool = True) -> str:
        if score is None:
            return "-"
        if self.share:
            return f"{score:.1%}"
        return f"{score:.4g} {self.unit}" if unit and self.unit else f"{score:.4g}"

    def change(self, now: float, before: float) -> str:
        """A difference with its sign, in points where scores are shares."""
        return f"{100 * (now - before):+.1f}" if self.share else f"{now - before:+.3g}"

    def progress(self, score: float, start: float) -> float | None:
        """None without a target, or where the start is already there."""
        if self.target is None or self.target == start:
            return None
        return (score - start) / (self.target - start) + 0.0  # never -0


ACCURACIES = Scale()


def _error(name: str, unit: str = "", target: float = 0.0) -> Scale:
    return Scale(name, unit, "lower", FIRST, target)


KNOWN = {
    scale.name: scale
    for scale in (
        ACCURACIES,
        Scale("auc", "", "higher", 0.5, 1.0),
        Scale("r2", "", "higher", FIRST, 1.0),
        _error("mean-squared-error"),
        _error("root-mean-squared-error"),
        _error("mean-absolute-error"),
        _error("perplexity", target=1.0),
        Scale("negative-squared-error", "", "higher", FIRST, 0.0),
    )
}
DEFAULTS = {"squared-error": "mean-squared-error"}  # by loss; accuracy for all others
OLD_DEFAULTS = {"squared-error": "negative-squared-error"}  # of run folders that do not name the metric


def default_metric(loss: object) -> str:
    return DEFAULTS.get(loss, ACCURACY) if isinstance(loss, str) else ACCURACY


def scale_of(metric: object, loss: object = None) -> Scale:
    """From a task's `metric`: None, a name, or a table; damaged values read as accuracy.

    A metric of the user's own has the target 1 only if its unit says that it is a share.
    """
    table = {"name": metric} if isinstance(metric, str) else metric if isinstance(metric, Mapping) else {}
    name = table.get("name") or default_metric(loss)
    known = KNOWN.get(name) if isinstance(name, str) else None
    if known is None:
        unit, better = str(table.get("unit") or ""), table.get("better")
        label = table.get("label") or str(name).rpartition(":")[2].strip("<>")
        label = str(name) if label in KNOWN else label  # a user's own accuracy is not ours
        target = (1.0 if better != "lower" else 0.0) if unit == PERCENT else None
        known = Scale(str(label), unit, "lower" if better == "lower" else "higher", FIRST, target)
    given: dict[str, Any] = {
        key: table[key] for key in ("unit", "start", "target") if table.get(key) is not None
    }
    return replace(known, **given) if given else known


def scale_of_final(values: Mapping[str, Any]) -> Scale:
    """From a task's final figures in a summary."""
    if "accuracy" in values:
        return ACCURACIES
    better: Better = "lower" if values.get("better") == "lower" else "higher"
    return Scale(str(values.get("metric")), str(values.get("unit") or ""), better)


def over_tasks_of(scales: Iterable[Scale]) -> str:
    """What the figures over tasks are called: accuracy if all of them are that."""
    return ACCURACY if all(scale.plain for scale in scales) else PROGRESS


def scales_of(table: Mapping[str, Any]) -> dict[str, Scale]:
    """By task, from a run's configuration; what is damaged is left out."""
    tasks = table.get("task")
    found = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    return {str(task.get("name")): _recorded(task) for task in found}


def _recorded(task: Mapping[str, Any]) -> Scale:
    """A run folder names every metric but accuracy, which older ones did not."""
    loss = task.get("loss")
    old = OLD_DEFAULTS.get(loss) if isinstance(loss, str) else None
    return scale_of(task.get("metric") or old or ACCURACY)
