"""Losses and metrics by name: functions of (outputs, targets) that return one value per point.

One value per point, not a mean: callers weight points themselves (ragged batches, clients' segments).
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch.nn import functional

from fedmux.errors import FedmuxError
from fedmux.importing import closest, import_object, name_of

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # outputs, targets -> (batch,), lower is better
Metric = Callable[
    [torch.Tensor, torch.Tensor], torch.Tensor
]  # outputs, targets -> (batch,), higher is better


def cross_entropy(
    outputs: torch.Tensor, targets: torch.Tensor, *, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Of logits (batch, C) and labels (batch,)."""
    return functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=label_smoothing)


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over the output dimensions; targets (batch,) and outputs (batch, 1) go together."""
    if outputs.numel() != targets.numel():
        raise FedmuxError(
            f"squared-error: outputs of shape {tuple(outputs.shape)} do not match targets of shape "
            f"{tuple(targets.shape)}; give the model as many outputs as a target has values, and floats for "
            "targets that are not labels"
        )
    difference = outputs - targets.reshape(outputs.shape).to(outputs.dtype)
    return difference.square().flatten(1).mean(1) if outputs.dim() > 1 else difference.square()


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """1 where the largest logit is the label, else 0."""
    return (outputs.argmax(-1) == targets).to(outputs.dtype)


def negative_squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Negated squared error, so that higher is better."""
    return -squared_error(outputs, targets)


LOSS = "a function of (outputs, targets) that returns one value per point, shape (batch,)"
LOSSES: Mapping[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}
METRICS: Mapping[str, Metric] = {"accuracy": accuracy, "negative-squared-error": negative_squared_error}
_DEFAULT_METRICS = {"squared-error": "negative-squared-error"}


def default_metric(loss: str | Loss) -> str:
    """The default metric for a loss."""
    return _DEFAULT_METRICS.get(loss, "accuracy") if isinstance(loss, str) else "accuracy"


def build_loss(name: str | Loss, options: dict[str, object]) -> Loss:
    """The loss `name`, or a user's function or `module:function`, with its options bound."""
    what = f'loss "{name_of(name)}"'
    loss = _find(name, LOSSES, "loss") if isinstance(name, str) else _function(name, what)
    try:
        inspect.signature(loss).bind(None, None, **options)
    except (TypeError, ValueError) as error:
        given = f" and options {options}" if options else ""
        raise FedmuxError(
            f"{what} cannot be called with (outputs, targets){given}: {error}; it should be {LOSS}"
        ) from error
    if name == "cross-entropy":
        _check_smoothing(options.get("label_smoothing", 0.0))
    bound = partial(loss, **options)
    return bound if isinstance(name, str) and name in LOSSES else _one_value_per_point(bound, what)


def build_metric(name: str) -> Metric:
    """The metric `name`, or a user's `module:function`."""
    metric = _find(name, METRICS, "metric")
    return metric if name in METRICS else _one_value_per_point(metric, f'metric "{name}"')


def _find(name: str, known: Mapping[str, Loss], what: str) -> Callable[..., torch.Tensor]:
    if ":" not in name:
        if name not in known:
            hint = closest(name, list(known))
            raise FedmuxError(
                f'{what} "{name}" is unknown{hint}; known: {", ".join(known)}, or your own module:function'
            )
        return known[name]
    return _function(import_object(name, what), f'{what} "{name}"')


def _function(found: object, what: str) -> Callable[..., torch.Tensor]:
    if not callable(found) or isinstance(found, type):
        raise FedmuxError(f"{what} is not a function of (outputs, targets); give one, not a class")
    return found


def _check_smoothing(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise FedmuxError(f'loss "cross-entropy": label_smoothing must be in [0, 1), got {value!r}')


def _one_value_per_point(function: Callable[..., torch.Tensor], what: str) -> Loss:
    """Reject a user's function that averages: its result would pass for a single point's value."""

    def checked(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        values = function(outputs, targets)
        if not isinstance(values, torch.Tensor):
            raise FedmuxError(
                f"{what} must return a tensor of one value per point, got {type(values).__name__}"
            )
        if values.shape != outputs.shape[:1]:
            raise FedmuxError(
                f"{what} must give one value per point, shape {tuple(outputs.shape[:1])}, "
                f'got {tuple(values.shape)}; with torch\'s losses set reduction="none"'
            )
        return values

    return checked
