"""A task at run time: one of the S models being trained, with its module, loss, metric and data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedmux.errors import FedmuxError
from fedmux.model import Layout, Model
from fedmux.population import Ints
from fedmux.privacy import Privacy

PointFunction = Callable[[Tensor, Tensor], Tensor]  # outputs, targets -> one number for each point


@dataclass(frozen=True)
class LocalSgd:
    """What a client does with the global model: epochs of mini-batch SGD over its own points."""

    batch_size: int
    epochs: int
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None  # largest gradient norm of a step

    def steps(self, sizes: Ints) -> Ints:
        """Gradient steps for clients of these sizes."""
        return self.epochs * self.passes(sizes)

    def passes(self, sizes: Ints) -> Ints:
        """Mini-batches in one pass over clients of these sizes."""
        return -(-sizes // self.batch_size)


@dataclass
class Pace:
    """A learning rate by round; a task that diverged and is tried again goes on with a part of it."""

    schedule: Callable[[int], float]
    factor: float = 1.0

    def __call__(self, round: int) -> float:
        return self.factor * self.schedule(round)


@dataclass(frozen=True, eq=False)
class Task:
    name: str
    module: nn.Module
    loss: PointFunction
    metric: PointFunction
    x: Tensor  # training points of all clients, one after the other
    y: Tensor
    offsets: Ints  # N + 1: client i owns points offsets[i] to offsets[i + 1]
    validation: tuple[Tensor, Tensor]  # held-out points that allocators may look at
    test: tuple[Tensor, Tensor]  # held-out points that are reported
    local: LocalSgd
    learning_rate: Callable[[int], float]  # of the round
    privacy: Privacy | None = None  # what happens to an update before it is sent

    def __post_init__(self) -> None:
        if not isinstance(self.learning_rate, Pace):
            object.__setattr__(self, "learning_rate", Pace(self.learning_rate))
        if self.privacy and self.layout.buffers:
            raise FedmuxError(
                "privacy: the model has buffers, such as batch statistics, which would leave clients without "
                "noise; use a model without them"
            )

    def slow_down(self, halvings: int) -> None:
        """The learning rate of all rounds from now on, halved so many times."""
        assert isinstance(self.learning_rate, Pace)
        self.learning_rate.factor = 0.5**halvings

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.module)

    @property
    def sizes(self) -> Ints:
        """N: points of each client."""
        return np.diff(self.offsets)

    def to(self, device: torch.device) -> "Task":
        """The task with its module and all its data there."""
        if self.x.device == device:
            return self
        module = self.module.to(device)
        x, y, *held_out = (t.to(device) for t in (self.x, self.y, *self.validation, *self.test))
        return replace(
            self,
            module=module,
            x=x,
            y=y,
            validation=(held_out[0], held_out[1]),
            test=(held_out[2], held_out[3]),
        )

    def points_of(self, clients: Ints) -> tuple[Tensor, Tensor, Ints]:
        """Points of some clients, in order, and where each of them begins and ends."""
        sizes = self.offsets[clients + 1] - self.offsets[clients]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        if len(clients) and (np.diff(clients) == 1).all():  # points that lie together
            part = slice(self.offsets[clients[0]], self.offsets[clients[-1] + 1])
            return self.x[part], self.y[part], offsets
        rows = np.repeat(self.offsets[clients] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return self.x[torch.from_numpy(rows)], self.y[torch.from_numpy(rows)], offsets

    def weights(self, model: Model) -> dict[str, Tensor]:
        """A model as a state dict of the module."""
        self.layout.write(model)
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}
