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
from fedmux.runs.scale import ACCURACIES, Scale
from fedmux.tasks.losses import Loss
from fedmux.tasks.metrics import Metric


@dataclass(frozen=True)
class LocalSgd:
    """A client's local training: epochs of mini-batch SGD over its own points."""

    batch_size: int
    epochs: int
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None  # largest gradient norm of a step

    def steps(self, sizes: Ints) -> Ints:
        """Gradient steps of clients of these sizes."""
        return self.epochs * self.passes(sizes)

    def passes(self, sizes: Ints) -> Ints:
        """Mini-batches per epoch of clients of these sizes."""
        return -(-sizes // self.batch_size)


@dataclass
class Pace:
    """A learning rate by round; reduced by a factor when a diverged task is retried."""

    schedule: Callable[[int], float]
    factor: float = 1.0

    def __call__(self, round: int) -> float:
        return self.factor * self.schedule(round)


@dataclass(frozen=True, eq=False)
class Task:
    name: str
    module: nn.Module
    loss: Loss
    metric: Metric
    x: Tensor  # training points of all clients, one after the other
    y: Tensor
    offsets: Ints  # N + 1: client i owns points offsets[i] to offsets[i + 1]
    validation: tuple[Tensor, Tensor]  # held-out points that allocators may use
    test: tuple[Tensor, Tensor]  # held-out points that are reported
    local: LocalSgd
    learning_rate: Callable[[int], float]  # of the round
    privacy: Privacy | None = None  # clipping and noise on updates before they are sent
    scale: Scale = ACCURACIES  # how to read its scores

    def __post_init__(self) -> None:
        if not isinstance(self.learning_rate, Pace):
            object.__setattr__(self, "learning_rate", Pace(self.learning_rate))
        if self.privacy and self.layout.buffers:
            raise FedmuxError(
                "privacy: the model has buffers, such as batch statistics, which clients would send without "
                "noise; use a model without buffers"
            )

    def slow_down(self, halvings: int) -> None:
        """Set the learning rate of all further rounds to the schedule, halved this many times."""
        assert isinstance(self.learning_rate, Pace)
        self.learning_rate.factor = 0.5**halvings

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.module)

    @property
    def sizes(self) -> Ints:
        """N: points per client."""
        return np.diff(self.offsets)

    def to(self, device: torch.device) -> "Task":
        """The task with its module and all its data on a device."""
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
        """Points of these clients, in order, and the offsets of each client among them."""
        sizes = self.offsets[clients + 1] - self.offsets[clients]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        if len(clients) and (np.diff(clients) == 1).all():  # contiguous points
            part = slice(self.offsets[clients[0]], self.offsets[clients[-1] + 1])
            return self.x[part], self.y[part], offsets
        rows = np.repeat(self.offsets[clients] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return self.x[torch.from_numpy(rows)], self.y[torch.from_numpy(rows)], offsets

    def weights(self, model: Model) -> dict[str, Tensor]:
        """A model's weights as a state dict of the module."""
        self.layout.write(model)
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}
