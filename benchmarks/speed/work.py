"""The work that every engine does: rounds of federated averaging over made-up data, fixed to the last bit.

Each client holds steps x batch points and makes one pass of plain SGD over them in the given order. A round
ends with the plain mean of the clients' updates.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedmux.tasks import build
from fedmux.tasks.char_lstm import LstmLayer

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

    def usual_module(self) -> nn.Module:
        """The same model as others would write it: with torch's own LSTM, which cannot be stacked."""
        return UsualCharLstm(self.module()) if self.model == "char-lstm" else self.module()

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
        for layer in module.modules():
            if isinstance(layer, LstmLayer):
                layer.forward = layer.by_steps  # operations of the fused form are not counted
        with FlopCounterMode(display=False) as counter:
            nn.functional.cross_entropy(module(x[0]), y[0]).backward()
        return counter.get_total_flops()


class UsualCharLstm(nn.Module):
    """`char-lstm` on `torch.nn.LSTM`; of its two biases one stays zero, as ours has one."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        layers = list(ours.lstm)
        hidden = layers[0].hidden_weight.shape[1]
        self.embedding, self.head = ours.embedding, ours.head
        self.lstm = nn.LSTM(ours.embedding.embedding_dim, hidden, len(layers), batch_first=True)
        with torch.no_grad():
            for number, layer in enumerate(layers):
                getattr(self.lstm, f"weight_ih_l{number}").copy_(layer.input_weight)
                getattr(self.lstm, f"weight_hh_l{number}").copy_(layer.hidden_weight)
                getattr(self.lstm, f"bias_ih_l{number}").copy_(layer.bias)
                getattr(self.lstm, f"bias_hh_l{number}").zero_().requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0][:, -1])


def flat(tensors: list[Tensor]) -> Tensor:
    """All values as one vector on the CPU (a copy)."""
    return torch.cat([tensor.detach().reshape(-1).cpu() for tensor in tensors])


def check(before: Tensor, after: Tensor) -> float:
    """The norm of a round's mean update: one number that tells whether two engines did the same work."""
    return math.sqrt(float((after.double() - before.double()).square().sum()))
