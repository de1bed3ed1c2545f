"""Metrics: how good a model is at a task, from its outputs and the targets.

A metric turns each point into a value, and the values of many points into a score. For most of them that is
a function of the mean, so points may be scored in any order and on any process; a few need all points at
once, and several values of each. `fedmux.runs.scale` says what a score means: unit, direction, progress.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedmux.errors import FedmuxError
from fedmux.importing import name_of
from fedmux.population import Floats, Ints
from fedmux.tasks.losses import find, one_value_per_point, squared_error, values_per_target

PointValues = Callable[[Tensor, Tensor], Tensor]  # outputs, targets -> (batch,) or (batch, k)


@dataclass(frozen=True)
class Metric:
    """A score from values of points; by default their mean."""

    points: PointValues
    finish: Callable[[Floats], Floats] = np.asarray  # of the means over points
    whole: Callable[[Floats], float] | None = None  # of all values (k x points), where a mean is not enough
    constant: Callable[[np.ndarray], float] | None = None  # the score of the best constant prediction

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """k x points."""
        values = self.points(outputs, targets)
        return values[None] if values.dim() == 1 else values.T

    def of_ranges(self, values: Floats, offsets: Ints) -> Floats:
        """Of consecutive ranges of points (k x points), for a metric that needs all of a range at once."""
        assert self.whole is not None
        ranges = zip(offsets[:-1].tolist(), offsets[1:].tolist())
        return np.array([self.whole(values[:, a:b]) if b > a else np.nan for a, b in ranges])


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the largest logit is the label, else 0."""
    return (outputs.argmax(-1) == targets).to(outputs.dtype)


def negative_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return -squared_error(outputs, targets)


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the output dimensions."""
    predicted, wanted = values_per_target(outputs, targets, "mean-absolute-error")
    return (predicted - wanted).abs().mean(1)


def _surprise(outputs: Tensor, targets: Tensor) -> Tensor:
    """-log of the probability given to the label."""
    _demand_labels(outputs, targets, "perplexity")
    return functional.cross_entropy(outputs, targets, reduction="none")


def _spread(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared error of each point, then its targets."""
    _, wanted = values_per_target(outputs, targets, "r2")
    return torch.cat([squared_error(outputs, targets)[:, None].double(), wanted.double()], dim=1)


def _ranked(outputs: Tensor, targets: Tensor) -> Tensor:
    """The evidence for the second of two classes, and whether it is the label."""
    _demand_labels(outputs, targets, "auc")
    if outputs.dim() != 2 or outputs.shape[1] != 2:
        classes = outputs.shape[1] if outputs.dim() == 2 else tuple(outputs.shape)
        raise FedmuxError(f"auc: needs a task of two classes, got {classes}; take accuracy")
    return torch.stack([outputs[:, 1] - outputs[:, 0], targets.to(outputs.dtype)], dim=1)


def _demand_labels(outputs: Tensor, targets: Tensor, metric: str) -> None:
    if targets.is_floating_point() or outputs.dim() < 2:
        raise FedmuxError(
            f"{metric}: needs logits (batch, classes) and whole-number labels, got outputs of shape "
            f"{tuple(outputs.shape)} and targets of type {str(targets.dtype).removeprefix('torch.')}"
        )


def area(values: Floats) -> float:
    """Area under the ROC curve: how often a point of the second class ranks above one of the first, ties
    half. NaN where only one class is there."""
    evidence, label = values
    order = np.unique(evidence, return_inverse=True, return_counts=True)
    before = np.concatenate([[0], np.cumsum(order[2])])
    ranks = (before[:-1] + before[1:] + 1)[order[1]] / 2  # of ties the mean
    second = label > 0.5
    pairs = int(second.sum()) * int((~second).sum())
    if not pairs or not np.isfinite(evidence).all():
        return float("nan")
    count = int(second.sum())
    return float((ranks[second].sum() - count * (count + 1) / 2) / pairs)


def explained(values: Floats) -> float:
    """1 - squared error / variance of the targets; NaN where all targets are the same."""
    spread = float(values[1:].var(axis=1).mean()) if values.shape[1] else 0.0
    return 1 - float(values[0].mean()) / spread if spread > 0 else float("nan")


def _shares(labels: np.ndarray) -> Floats:
    found = np.unique(labels, return_counts=True)[1] / max(len(labels), 1)
    return np.asarray(found, np.float64)


def _variance(targets: np.ndarray) -> float:
    return float(targets.reshape(len(targets), -1).astype(np.float64).var(axis=0).mean())


def _from_median(targets: np.ndarray) -> float:
    flat = targets.reshape(len(targets), -1).astype(np.float64)
    return float(np.abs(flat - np.median(flat, axis=0)).mean())


def _guess(labels: np.ndarray) -> float:
    """The perplexity of the labels' own frequencies."""
    shares = _shares(labels)
    return float(np.exp(-(shares * np.log(shares)).sum()))


METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, constant=lambda labels: float(_shares(labels).max(initial=0.0))),
    "auc": Metric(_ranked, whole=area, constant=lambda labels: 0.5),
    "r2": Metric(_spread, whole=explained, constant=lambda targets: 0.0),
    "mean-squared-error": Metric(squared_error, constant=_variance),
    "root-mean-squared-error": Metric(
        squared_error, finish=np.sqrt, constant=lambda targets: _variance(targets) ** 0.5
    ),
    "mean-absolute-error": Metric(absolute_error, constant=_from_median),
    "perplexity": Metric(_surprise, finish=np.exp, constant=_guess),
    "negative-squared-error": Metric(negative_squared_error, constant=lambda targets: -_variance(targets)),
}


def build_metric(name: str | PointValues) -> Metric:
    """The metric `name`, or a user's function or `module:function` (outputs, targets) -> (batch,)."""
    found = find(name, METRICS, "metric")
    what = f'metric "{name_of(name)}"'
    return found if isinstance(found, Metric) else Metric(one_value_per_point(found, what))
