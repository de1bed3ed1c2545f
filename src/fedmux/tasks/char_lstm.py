"""Next-character prediction: embedding, stacked LSTM, linear layer on the last step.

The LSTM is our own because `torch.nn.LSTM` cannot be vectorised over clients with `torch.func.vmap`. A single
client on a CPU uses torch's, which is faster there. The gates are in torch's order (input, forget, cell,
output), with one bias where torch adds two.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from fedmux.errors import FedmuxError


class _OverClients(torch.autograd.Function):
    """A function of tensors whose first dimension is clients already: `vmap` only adds more of them.

    So its steps run on plain tensors, where they may write in place, and autograd records none of them.
    """

    @classmethod
    def vmap(cls, info: Any, dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Any, Any]:
        size = info.batch_size
        stacked = [
            x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip(tensors, dims)
        ]
        results = _apply(cls, *(x.flatten(0, 1) for x in stacked))
        return tuple(x.unflatten(0, (size, -1)) for x in results), (0,) * len(results)


class Recurrence(_OverClients):
    """The steps of an LSTM from a zero state, given the products of its inputs with their weights.

    From products (clients, length, batch, 4 hidden), biases (clients, 4 hidden) and weights (clients,
    4 hidden, hidden) to the states (clients, length, batch, hidden), followed by what the gradient needs:
    each step's cells, then each step's gates. Products and states have the weights' dtype, gates and cells
    the biases'.
    """

    @staticmethod
    def forward(products: Tensor, bias: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        clients, length, batch, wide = products.shape
        entering = bias.new_empty(length, clients, batch, wide)  # a step is contiguous in memory
        torch.add(products.transpose(0, 1), bias[:, None], out=entering)
        recurrent = weight.mT
        again = bias.new_zeros(clients * batch, wide)
        cell = bias.new_zeros(clients * batch, weight.shape[-1])
        states: list[Tensor] = []
        cells: list[Tensor] = []
        gates: list[Tensor] = []
        for step, inputs in enumerate(entering.flatten(1, 2)):
            if step:
                before = states[-1].unflatten(0, (clients, batch)).to(weight.dtype)
                again = torch.bmm(before, recurrent).flatten(0, 1).to(bias.dtype)
            state, cell, gate = _cell(inputs, again, cell)
            states.append(state)
            cells.append(cell)
            gates.append(gate)
        kept = [x.unflatten(0, (clients, batch)) for x in (*states, *cells, *gates)]
        return torch.stack(kept[:length], dim=1).to(weight.dtype), *kept[length:]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(inputs[2], *output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> Any:
        if gradient is None:
            return None, None, None
        return _apply(_RecurrenceGradient, gradient, *ctx.saved_tensors)


class _RecurrenceGradient(_OverClients):
    """The gradients of `Recurrence`; that of the weights is one product over all steps."""

    @staticmethod
    def forward(gradient: Tensor, weight: Tensor, states: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        clients, length, batch, _ = states.shape
        cells, gates = ([x.flatten(0, 1) for x in part] for part in (kept[:length], kept[length:]))
        of_state = gradient.transpose(0, 1).to(
            cells[0].dtype, copy=True, memory_format=torch.contiguous_format
        )
        of_cell = torch.zeros_like(cells[0])
        of_gates: list[Tensor] = []  # the last step's first
        for step in reversed(range(length)):
            if of_gates:
                _add_product(of_state[step], of_gates[-1].to(weight.dtype), weight)
            before = cells[step - 1] if step else torch.zeros_like(of_cell)
            of_gate, of_cell = _cell_gradient(
                of_state[step].flatten(0, 1), of_cell, before, cells[step], gates[step]
            )
            of_gates.append(of_gate.unflatten(0, (clients, batch)))
        whole = torch.stack(of_gates[::-1], dim=1)
        cast = whole.to(weight.dtype)
        of_weight = cast[:, 1:].flatten(1, 2).mT @ states[:, :-1].flatten(1, 2)
        return cast, whole.sum((1, 2)), of_weight

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing to save: there is no second derivative."""


def _cell(inputs: Tensor, again: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A step's state, cell and gates, from the products of inputs and previous state, and the previous cell.

    On a GPU a single torch kernel; written out it would be six.
    """
    if inputs.is_cuda:
        state, cell, gates = torch.ops.aten._thnn_fused_lstm_cell(inputs, again, before)
        return state, cell, gates
    enter, forget, candidate, leave = (inputs + again).chunk(4, dim=-1)
    gates = torch.cat([enter.sigmoid(), forget.sigmoid(), candidate.tanh(), leave.sigmoid()], dim=-1)
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    cell = enter * candidate + forget * before
    return leave * cell.tanh(), cell, gates


def _cell_gradient(
    of_state: Tensor, of_cell: Tensor, before: Tensor, cell: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of a step's gates (before their activations) and of the previous cell."""
    if cell.is_cuda:
        back = torch.ops.aten._thnn_fused_lstm_cell_backward_impl
        of_gates, of_before, _ = back(of_state, of_cell, before, cell, gates, False)
        return of_gates, of_before
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    output = cell.tanh()
    of_cell = of_cell + of_state * leave * (1 - output * output)
    of_gates = torch.cat(
        [
            of_cell * candidate * enter * (1 - enter),
            of_cell * before * forget * (1 - forget),
            of_cell * enter * (1 - candidate * candidate),
            of_state * output * leave * (1 - leave),
        ],
        dim=-1,
    )
    return of_gates, of_cell * forget


def _apply(function: type[_OverClients], *tensors: Tensor) -> tuple[Tensor, ...]:
    return function.apply(*tensors)  # type: ignore[no-untyped-call]


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right for each client, even if their dtype is smaller."""
    if total.dtype == right.dtype:
        torch.baddbmm(total, left, right, out=total)  # not baddbmm_, whose flops are not counted
    else:
        total.add_(torch.bmm(left, right))


class LstmLayer(nn.Module):
    """One LSTM layer from a zero state: (batch, length, inputs) to the states (batch, length, hidden)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.hidden_weight = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.is_cpu and torch._C._functorch.peek_interpreter_stack() is None:  # not inside vmap
            return self.fused(inputs)
        return self.by_steps(inputs)

    def by_steps(self, inputs: Tensor) -> Tensor:
        # Only the state's part of the gates depends on the previous step; the inputs' part is one product.
        products = inputs.transpose(0, 1) @ self.input_weight.T  # length x batch x 4 hidden
        weight = self.hidden_weight.to(products.dtype)  # under autocast, cast once for all steps
        states = _apply(Recurrence, products[None], self.bias[None], weight[None])[0]
        return states[0].transpose(0, 1)

    def fused(self, inputs: Tensor) -> Tensor:
        zero = inputs.new_zeros(1, len(inputs), self.hidden_weight.shape[1])
        weights = [self.input_weight, self.hidden_weight, self.bias, torch.zeros_like(self.bias)]
        states, _, _ = torch.lstm(inputs, (zero, zero), weights, True, 1, 0.0, self.training, False, True)
        return states


class CharLstm(nn.Module):
    """Tokens (batch, length), each below `vocabulary`, to logits of the next token (batch, classes)."""

    def __init__(
        self,
        classes: int = 80,
        vocabulary: int | None = None,  # default: `classes`
        embedding: int = 8,
        hidden: int = 256,
        layers: int = 2,
    ) -> None:
        super().__init__()
        vocabulary = classes if vocabulary is None else vocabulary
        given = {"vocabulary": vocabulary, "embedding": embedding, "hidden": hidden, "layers": layers}
        for name, size in given.items():
            if size < 1:
                raise FedmuxError(f"{name} must be > 0, got {size}")
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.Sequential(
            *(LstmLayer(hidden if layer else embedding, hidden) for layer in range(layers))
        )
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states[:, -1])
        return logits
