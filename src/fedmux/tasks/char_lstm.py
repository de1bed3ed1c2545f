"""Next-character prediction: embedding, stacked LSTM, linear layer on the last step.

The LSTM is our own because `torch.nn.LSTM` cannot be vectorised over clients with `torch.func.vmap`. One
client alone on a CPU goes through torch's, which is faster there. The gates stand in torch's order (input,
forget, cell, output), with one bias where torch adds up two.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from fedmux.errors import FedmuxError


class _OverClients(torch.autograd.Function):
    """A function of tensors that have clients in front already: `vmap` only makes more of them.

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
    4 hidden, hidden) to the states (clients, length, batch, hidden), and after them what the gradient needs.
    Products are computed and states returned in the weights' type; gates and cells have that of the biases.
    """

    @staticmethod
    def forward(products: Tensor, bias: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        gates = products + bias[:, None, None]
        enter, forget, candidate, leave = (gate.unbind(1) for gate in gates.chunk(4, dim=-1))
        candidates, cells = (gates.new_empty(*gates.shape[:3], weight.shape[-1]) for _ in range(2))
        states = torch.empty_like(cells, dtype=weight.dtype)
        recurrent, every, cell, state = weight.mT, gates.unbind(1), cells.unbind(1), states.unbind(1)
        for step, bounded in enumerate(candidates.unbind(1)):
            if step:
                _add_product(every[step], state[step - 1], recurrent)
            torch.tanh(candidate[step], out=bounded)
            every[step].sigmoid_()
            torch.mul(enter[step], bounded, out=cell[step])
            if step:
                cell[step].addcmul_(forget[step], cell[step - 1])
            # The candidate's sigmoid has no use; in its place the output is kept for the gradient.
            torch.tanh(cell[step], out=candidate[step])
            torch.mul(leave[step], candidate[step], out=state[step])
        return states, gates, candidates, cells

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
    def forward(
        gradient: Tensor, weight: Tensor, states: Tensor, gates: Tensor, candidates: Tensor, cells: Tensor
    ) -> tuple[Tensor, ...]:
        enter, forget, output, leave = gates.chunk(4, dim=-1)
        # What does not wait for later steps: how the state depends on the cell, and on each of the gates
        # the cell (the first three) or the state (the last).
        by_cell = torch.addcmul(leave, leave * output, output, value=-1).unbind(1)
        slopes = torch.addcmul(gates, gates, gates, value=-1)
        by_enter, by_forget, by_candidate, by_leave = slopes.chunk(4, dim=-1)
        by_enter.mul_(candidates)
        by_forget[:, 1:].mul_(cells[:, :-1])
        by_forget[:, 0].zero_()
        torch.addcmul(enter, enter * candidates, candidates, value=-1, out=by_candidate)
        by_leave.mul_(output)

        wide = slopes.unflatten(-1, (4, -1))
        result = wide if weight.dtype == wide.dtype else torch.empty_like(wide, dtype=weight.dtype)
        of_gates = result.flatten(-2)
        later, keep = of_gates.unbind(1), forget.unbind(1)
        parts = [(x[..., :3, :].unbind(1), x[..., 3, :].unbind(1)) for x in (wide, result)]
        (by_first, by_last), (of_first, of_last) = parts
        of_state = gradient.to(gates.dtype, copy=True, memory_format=torch.contiguous_format).unbind(1)
        of_cell = torch.zeros_like(of_state[0])
        for step in reversed(range(len(of_state))):
            if step + 1 < len(of_state):
                _add_product(of_state[step], later[step + 1], weight)
            of_cell.addcmul_(of_state[step], by_cell[step])
            torch.mul(by_first[step], of_cell.unsqueeze(-2), out=of_first[step])
            torch.mul(by_last[step], of_state[step], out=of_last[step])
            of_cell.mul_(keep[step])
        of_weight = of_gates[:, 1:].flatten(1, 2).mT @ states[:, :-1].flatten(1, 2)
        return of_gates, of_gates.sum((1, 2), dtype=gates.dtype), of_weight

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing to keep: there is no second derivative."""


def _apply(function: type[_OverClients], *tensors: Tensor) -> tuple[Tensor, ...]:
    return function.apply(*tensors)  # type: ignore[no-untyped-call]


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right for each client, also if those are of a smaller type."""
    if total.dtype == right.dtype:
        torch.baddbmm(total, left, right, out=total)  # not baddbmm_, whose operations are not counted
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
        if inputs.is_cpu and torch._C._functorch.peek_interpreter_stack() is None:  # no vmap around
            return self.fused(inputs)
        return self.by_steps(inputs)

    def by_steps(self, inputs: Tensor) -> Tensor:
        # Only the state's part of the gates has to wait for the step before; the inputs' part is one product.
        products = inputs.transpose(0, 1) @ self.input_weight.T  # length x batch x 4 hidden
        weight = self.hidden_weight.to(products.dtype)  # under autocast its type, cast once for all steps
        states = _apply(Recurrence, products[None], self.bias[None], weight[None])[0]
        return states[0].transpose(0, 1)

    def fused(self, inputs: Tensor) -> Tensor:
        zero = inputs.new_zeros(1, len(inputs), self.hidden_weight.shape[1])
        weights = [self.input_weight, self.hidden_weight, self.bias, torch.zeros_like(self.bias)]
        states, _, _ = torch.lstm(inputs, (zero, zero), weights, True, 1, 0.0, self.training, False, True)
        return states


class CharLstm(nn.Module):
    """Tokens (batch, length), each below `vocabulary`, to logits of the next one (batch, classes)."""

    def __init__(
        self,
        classes: int = 80,
        vocabulary: int | None = None,  # as many as classes
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
