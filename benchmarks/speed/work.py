"""The work that every engine does: rounds of federated averaging over made-up data, fixed to the last bit.

Each client holds steps x batch points and makes one pass of plain SGD over them in the given order. A round
ends with the plain mean of the clients' updates.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedmux.tasks import build

LEARNING_RATE = 0.01
TOLERANCE = 1e-3  # relative, between the checks of two engines; float32 in another order stays far below

# Of each model: the shape of a point, the classes, the options.
MODELS: dict[str, tuple[tuple[int, ...], int, dict[str, object]]] = {
    "cnn": ((1, 28, 28), 10, {"kernel_size": 5}),
    "resnet18": ((3, 32, 32), 10, {}),
    "char-lstm": ((80,), 80, {}),
}


@dataclass(frozen=True)
class Work:
    model: str
    clients: int
    steps: int  # of a client in a round
    batch: int

    def module(self) -> nn.Module:
        """The model with its initial weights, the same each time."""
        shape, classes, options = MODELS[self.model]
        torch.manual_seed(0)
        return build(self.model, input_shape=shape, outputs=classes, options=options)

    def data(self) -> tuple[Tensor, Tensor]:
        """Points (clients, steps x batch, ...) and labels (clients, steps x batch)."""
        shape, classes, _ = MODELS[self.model]
        generator = torch.Generator().manual_seed(1)
        size = (self.clients, self.steps * self.batch)
        y = torch.randint(classes, size, generator=generator)
        if self.model == "char-lstm":
            return torch.randint(classes, (*size, *shape), generator=generator), y
        return torch.randn(*size, *shape, generator=generator), y

    def flops(self) -> int:
        """Floating-point operations of one client's step, forward and backward, counted."""
        from torch.utils.flop_counter import FlopCounterMode

        one = Work(self.model, 1, 1, self.batch)
        module, (x, y) = one.module(), one.data()
        with FlopCounterMode(display=False) as counter:
            nn.functional.cross_entropy(module(x[0]), y[0]).backward()
        return counter.get_total_flops()


def flat(tensors: list[Tensor]) -> Tensor:
    """All values as one vector on the CPU (a copy)."""
    return torch.cat([tensor.detach().reshape(-1).cpu() for tensor in tensors])


def check(before: Tensor, after: Tensor) -> float:
    """The norm of a round's mean update: one number that tells whether two engines did the same work."""
    return math.sqrt(float((after.double() - before.double()).square().sum()))
