"""Losses by name: functions of (outputs, targets) that return one value per point.

One value per point, not a mean: callers weight points themselves (ragged batches, clients' segments).
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from fedmux.errors import FedmuxError
from fedmux.importing import closest, import_object, name_of

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # outputs, targets -> (batch,), lower is better


def cross_entropy(
    outputs: torch.Tensor, targets: torch.Tensor, *, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Of logits (batch, C) and labels (batch,)."""
    return functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=label_smoothing)


def values_per_target(
    outputs: torch.Tensor, targets: torch.Tensor, what: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both as (batch, values); targets (batch,) and outputs (batch, 1) go together."""
    if outputs.numel() != targets.numel():
        raise FedmuxError(
            f"{what}: outputs of shape {tuple(outputs.shape)} do not match targets of shape "
            f"{tuple(targets.shape)}; give the model as many outputs as a target has values, and floats for "
            "targets that are not labels"
        )
    flat = outputs.flatten(1) if outputs.dim() > 1 else outputs[:, None]
    return flat, targets.reshape(flat.shape).to(outputs.dtype)


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over the output dimensions."""
    predicted, wanted = values_per_target(outputs, targets, "squared-error")
    return (predicted - wanted).square().mean(1)


LOSS = "a function of (outputs, targets) that returns one value per point, shape (batch,)"
LOSSES: Mapping[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}


def build_loss(name: str | Loss, options: dict[str, object]) -> Loss:
    """The loss `name`, or a user's function or `module:function`, with its options bound."""
    what = f'loss "{name_of(name)}"'
    loss = find(name, LOSSES, "loss")
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
    return bound if isinstance(name, str) and name in LOSSES else one_value_per_point(bound, what)


def find(name: str | Loss, known: Mapping[str, object], what: str) -> Any:
    """One of ours, or a user's function or `module:function`."""
    if not isinstance(name, str):
        return _function(name, f'{what} "{name_of(name)}"')
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


def one_value_per_point(function: Callable[..., torch.Tensor], what: str) -> Loss:
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
