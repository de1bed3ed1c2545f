"""A module's weights as flat vectors, so that each aggregation rule is a line of linear algebra.

A model is two vectors: the trainable parameters (float32), and its buffers (float64, so that integer
counters survive). Buffers, such as batch-norm statistics, never get inverse-probability weights: these do
not sum to one, and a running variance could become negative.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Model:
    parameters: Tensor  # P
    buffers: Tensor  # Q, float64

    def checksum(self) -> int:
        """Of every bit: the same wherever the weights are the same, whatever the number of threads."""
        parts = [part.contiguous().view(torch.int32) for part in (self.parameters, self.buffers)]
        return int(sum(part.sum(dtype=torch.int32) for part in parts))


class Layout:
    """Where each parameter and buffer of a module lies in its flat vectors."""

    def __init__(self, module: nn.Module) -> None:
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.buffers = dict(module.named_buffers())
        self.size = sum(p.numel() for p in self.parameters.values())
        self.buffer_size = sum(b.numel() for b in self.buffers.values())

    @property
    def upload_bytes(self) -> int:
        """What one client sends for this model: its parameters and buffers in their own types."""
        tensors = [*self.parameters.values(), *self.buffers.values()]
        return sum(t.numel() * t.element_size() for t in tensors)

    def read(self) -> Model:
        """A copy of the module's current weights."""
        parameters = [p.detach().reshape(-1).float() for p in self.parameters.values()]
        return Model(
            torch.cat(parameters) if parameters else torch.zeros(0), read_buffers(list(self.buffers.values()))
        )

    def views(self, flat: Tensor) -> list[Tensor]:
        """A vector (P) split into the shapes of the parameters."""
        parameters = self.parameters.values()
        return [part.view_as(p) for p, part in zip(parameters, flat.split([p.numel() for p in parameters]))]

    @torch.no_grad()
    def write(self, model: Model) -> None:
        """Put a model's weights into the module, in place."""
        for parameter, values in zip(self.parameters.values(), self.views(model.parameters)):
            parameter.copy_(values)
        write_buffers(list(self.buffers.values()), model.buffers)

    def bind(self) -> Tensor:
        """Make the module's parameters views of one vector and return it: writing it writes the module."""
        flat = self.read().parameters
        for parameter, values in zip(self.parameters.values(), self.views(flat)):
            parameter.data = values
        return flat


def read_buffers(buffers: list[Tensor]) -> Tensor:
    """All buffers as one float64 vector (a copy)."""
    parts = [b.detach().reshape(-1).double() for b in buffers]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


@torch.no_grad()
def write_buffers(buffers: list[Tensor], values: Tensor) -> None:
    """The inverse of `read_buffers`; integer buffers are rounded."""
    for buffer, part in zip(buffers, values.split([b.numel() for b in buffers])):
        part = part if buffer.is_floating_point() else part.round()
        buffer.copy_(part.view_as(buffer))
