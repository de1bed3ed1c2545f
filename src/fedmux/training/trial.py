"""One small batch through module, loss and metric: what does not fit is told before any work starts."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedmux.data import Dataset
from fedmux.errors import FedmuxError
from fedmux.experiment import TaskSettings
from fedmux.importing import FAILURES, first_line
from fedmux.tasks.task import Task


def check_targets(settings: TaskSettings, dataset: Dataset) -> None:
    """Refuse targets that are not labels for a loss that needs labels."""
    if settings.loss != "cross-entropy" or dataset.classes is not None:
        return
    y = dataset.train_y
    one_hot = y.ndim == 2 and y.shape[1] > 1 and bool(((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all())
    if one_hot:
        what, remedy = "one-hot rows", "give class numbers, y.argmax(1)"
    elif not (y % 1).any() and y.size == len(y):
        what, remedy = "floats that are whole numbers", "if they are labels, give y.astype(int)"
        remedy += ".ravel()" * (y.ndim > 1)
    else:
        what, remedy = "floats", 'give whole numbers 0, 1, ... for labels, or set loss = "squared-error"'
    example = np.array2string(y[0], threshold=5)
    raise FedmuxError(
        f'data: the targets are {what}, such as {example}, but loss "cross-entropy" needs labels; {remedy}'
    )


def try_out(task: Task, settings: TaskSettings) -> None:
    """Report a mismatch of module, loss, metric and data."""
    x, y = _few(task)
    task.module.eval()
    shape = str(tuple(x.shape[1:]))
    if not x.is_floating_point():
        shape += f" with tokens {int(x.min())}..{int(x.max())}"
    outputs = _tried(partial(task.module, x), f"the model does not fit the data of shape {shape}")
    if not isinstance(outputs, Tensor):
        raise FedmuxError(f"the model must return a tensor of outputs, got {type(outputs).__name__}")
    if settings.loss == "cross-entropy" and outputs.ndim == 2 and outputs.shape[1] <= int(y.max()):
        raise FedmuxError(
            f"the model has {outputs.shape[1]} outputs, but labels go up to {int(y.max())}; give it one for "
            "each label: a parameter named outputs is passed their number"
        )
    shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(y.shape)}"
    for name, function in (("loss", task.loss), ("metric", task.metric)):
        value = _tried(partial(function, outputs, y), f"the {name} fails on {shapes}")
        if value.shape[-1:] != (len(x),):  # of a metric, several rows of them
            raise FedmuxError(
                f"the {name} must return one value per point, got shape {tuple(value.shape)} "
                f"for {len(x)} points"
            )


def _few(task: Task) -> tuple[Tensor, Tensor]:
    """Two held-out points, and those with the highest label, the highest and the lowest token."""
    rows = []
    if len(task.y) and not task.y.is_floating_point():
        rows.append(int(task.y.argmax()))
    if task.x.numel() and not task.x.is_floating_point():
        flat = task.x.flatten(1)
        rows += [int(flat.amax(1).argmax()), int(flat.amin(1).argmin())]
    x, y = task.test
    return torch.cat([x[:2], task.x[rows]]), torch.cat([y[:2], task.y[rows]])


def _tried(work: Callable[[], Tensor], what: str) -> Tensor:
    try:
        with torch.no_grad():
            return work()
    except FedmuxError:  # already says what does not fit
        raise
    except FAILURES as error:  # a user's module can raise anything
        text = "" if isinstance(error, SystemExit) else str(error).strip().partition("\n")[0].rstrip(".")
        raise FedmuxError(f"{what}: {text or first_line(error)}") from error
