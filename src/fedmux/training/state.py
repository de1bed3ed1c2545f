"""All that one round passes to the next, as one value; a checkpoint holds this and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation import Aggregator
from fedmux.allocation import Allocator
from fedmux.dynamics import Returns
from fedmux.errors import FedmuxError
from fedmux.model import Model
from fedmux.runs.writing import Checkpoint
from fedmux.tasks.task import Task
from fedmux.training.divergence import Watch


@dataclass
class State:
    models: list[Model]  # the global model of each task
    allocator: Allocator  # with what it has learned
    aggregator: Aggregator  # with its per-client state
    returns: Returns  # how reliably clients come back
    watch: Watch  # the last sound models, and the paused tasks
    round: int = 0  # rounds completed
    seconds: float = 0.0  # wall-clock time so far
    starts: dict[str, list[float]] = field(default_factory=dict)  # where progress begins, by held-out part
    idle: set[str] = field(default_factory=set)  # tasks that no present client has

    def tensors(self, tasks: Sequence[Task]) -> dict[str, Tensor]:
        """For a checkpoint, by name. Every process must call it: an aggregator's state is distributed."""
        tensors = {f"aggregator.{key}": value for key, value in _state_of(self.aggregator, Tensor).items()}
        for prefix, part in (("allocator", self.allocator), ("returns", self.returns)):
            kept = _state_of(part, np.ndarray)
            tensors |= {f"{prefix}.{key}": torch.from_numpy(value) for key, value in kept.items()}
        for task, model in zip(tasks, self.models):
            tensors[f"model.{task.name}.parameters"] = model.parameters.cpu()
            tensors[f"model.{task.name}.buffers"] = model.buffers.cpu()
        return tensors | {f"sound.{key}": value for key, value in self.watch.tensors(self.models).items()}

    def outside(self) -> dict[str, Any]:
        """For a checkpoint, all that is not a tensor, as JSON values."""
        return {
            "seconds": self.seconds,
            "paused": sorted(self.idle),
            "watch": self.watch.state(),
            "starts": self.starts,
        }

    def restore(self, checkpoint: Checkpoint, tasks: Sequence[Task]) -> None:
        """From a checkpoint; the current models give shapes and devices."""
        tensors, outside = checkpoint.tensors, checkpoint.state
        self.round, self.seconds, self.idle = checkpoint.rounds, outside["seconds"], set(outside["paused"])
        self.models = [
            Model(
                tensors[f"model.{task.name}.parameters"].to(start.parameters),
                tensors[f"model.{task.name}.buffers"].to(start.buffers),
            )
            for task, start in zip(tasks, self.models)
        ]
        self.starts.update(outside.get("starts", {}))
        self.watch.restore(outside.get("watch", {}), _under("sound.", tensors), self.models)
        for task, retries in zip(tasks, self.watch.retries.tolist()):
            task.slow_down(retries)
        self.aggregator.restore(_under("aggregator.", tensors))
        for prefix, part in (("allocator.", self.allocator), ("returns.", self.returns)):
            part.restore({key: value.numpy() for key, value in _under(prefix, tensors).items()})


def _state_of(part: Aggregator | Allocator | Returns, kind: type) -> dict[str, Any]:
    """FedmuxError if it holds what no checkpoint can: anything but arrays of numbers."""
    state: dict[str, Any] = part.state()
    for key, value in state.items():
        what = f'{type(part).__name__}.state() holds "{key}", a {type(value).__name__}'
        if not isinstance(value, kind):
            right = "a NumPy array" if kind is np.ndarray else "a tensor"
            raise FedmuxError(f"{what}; make it {right}, or a checkpoint cannot hold it")
        if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
            raise FedmuxError(f"{what} of {value.dtype}; a checkpoint holds arrays of numbers only")
    return state


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
