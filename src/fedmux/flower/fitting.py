"""Whether points, module, loss and metric go together, tried before anything is trained on them.

What does not is told with its shapes and the remedy, in one line: at a client it is all that the server's log
gets to see.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedmux.errors import FedmuxError
from fedmux.fleet.engine import whole
from fedmux.importing import first_line
from fedmux.model import Model
from fedmux.tasks.task import Task

Points = tuple[Tensor, Tensor]
IGNORED = -100  # torch's cross-entropy leaves out points with this label


def pair(given: Any, source: str) -> Points:
    """The inputs and labels that a function of the app has returned."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise FedmuxError(f"{source} gave {type(given).__name__}; return two tensors, inputs and labels")
    x, y = given
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        kinds = f"{type(x).__name__} and {type(y).__name__}"
        raise FedmuxError(f"{source} gave {kinds}; return two tensors, such as torch.from_numpy(array)")
    if not x.dim() or not y.dim() or len(x) != len(y):
        raise FedmuxError(
            f"{source} gave inputs of shape {tuple(x.shape)} and labels of shape {tuple(y.shape)}; return as "
            "many labels as inputs"
        )
    return x, y


def same_module(task: Task, sent: Model) -> None:
    """FedmuxError if a server's model is not of this task's module."""
    own = task.layout.read()
    theirs, ours = ((len(model.parameters), len(model.buffers)) for model in (sent, own))
    if theirs != ours:
        raise FedmuxError(
            f"the server's model has {theirs[0]} parameters and {theirs[1]} values in buffers, the module "
            f"here {ours[0]} and {ours[1]}; build the same module at the server and at every client"
        )


def fits(task: Task, points: Points, source: str, loss: str) -> None:
    """FedmuxError if the task cannot train or be scored on these points, which come from `source`."""
    if not len(points[0]):
        raise FedmuxError(f"{source} gives no points; return at least one")
    x, y = points[0][:2], points[1][:2]
    shape = tuple(x.shape[1:])
    task.module.eval()
    outputs = _tried(
        partial(task.module, x),
        f"the module does not take the inputs of {source}, of shape {shape} and type {_type(x)}",
        "; change the one or the other",
    )
    outputs = whole(outputs)
    if loss == "cross-entropy":
        _labels(points[1], outputs, source)
    shapes = (
        f"outputs of shape {tuple(outputs.shape)} and the labels of {source}, of shape {tuple(y.shape)} and "
        f"type {_type(y)}, for {len(x)} points"
    )
    for name, function in (("loss", task.loss), ("metric", task.metric)):
        values = _tried(partial(function, outputs, y), f"the {name} fails on {shapes}")
        if values.shape[-1:] != (len(x),):  # of a metric, several rows of them
            raise FedmuxError(
                f"the {name} must give one value per point, got {tuple(values.shape)} on {shapes}"
            )


def _labels(y: Tensor, outputs: Tensor, source: str) -> None:
    """Cross-entropy takes whole numbers from 0 to the number of outputs, exclusive."""
    needed = 'loss "cross-entropy" takes whole numbers from 0, one for each point'
    if y.dim() == 2 and y.shape[1] > 1:
        raise FedmuxError(
            f"the labels of {source} have shape {tuple(y.shape)}, but {needed}; if they are one-hot, return "
            "y.argmax(1)"
        )
    if y.dim() != 1:
        raise FedmuxError(
            f"the labels of {source} have shape {tuple(y.shape)}, but {needed}; return y.flatten()"
        )
    if y.dtype not in (torch.int64, torch.uint8):
        raise FedmuxError(
            f"the labels of {source} are {_type(y)}, but {needed}; return y.long(), or set another loss in "
            "the experiment"
        )
    if outputs.dim() != 2:
        raise FedmuxError(
            f"the module gives outputs of shape {tuple(outputs.shape)} for {len(outputs)} points, but loss "
            '"cross-entropy" takes (points, classes); give it one output per class'
        )
    classes = outputs.shape[1]
    y = y.long()
    wrong = y[((y < 0) & (y != IGNORED)) | (y >= classes)]
    if len(wrong):
        raise FedmuxError(
            f"{source} has the label {int(wrong[0])}, but the module has {classes} outputs, for labels from "
            f"0 to {classes - 1}; give it an output for each class, or number the labels from 0"
        )


def _tried(work: Callable[[], Any], what: str, remedy: str = "") -> Tensor:
    try:
        with torch.no_grad():
            value = work()
    except FedmuxError:  # says what does not fit
        raise
    except Exception as error:  # a user's module can raise anything
        raise FedmuxError(f"{what}: {first_line(error)}{remedy}") from error
    if not isinstance(value, Tensor):
        raise FedmuxError(f"{what}: the result is {type(value).__name__}, not a tensor")
    return value


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
