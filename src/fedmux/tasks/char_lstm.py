"""Next-character prediction: embedding, stacked LSTM, linear layer on the last step.

The LSTM is written with matrix products because `torch.nn.LSTM` cannot be vectorised over clients with
`torch.func.vmap`. The gates stand in torch's order (input, forget, cell, output), with one bias where torch
adds up two.
"""

import math

import torch
from torch import nn

from fedmux.errors import FedmuxError


class LstmLayer(nn.Module):
    """One LSTM layer from a zero state: (batch, length, inputs) to the states (batch, length, hidden)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.hidden_weight = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        # Only the state's part of the gates has to wait for the step before; the inputs' part is one product.
        projected = inputs @ self.input_weight.T + self.bias  # batch x length x 4 hidden
        recurrent = self.hidden_weight.T
        state = cell = projected.new_zeros(())  # zero in any shape
        states: list[torch.Tensor] = []
        for step, gates in enumerate(projected.unbind(1)):
            if step:
                gates = gates + state @ recurrent
            enter, forget, candidate, leave = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
            state = torch.sigmoid(leave) * torch.tanh(cell)
            states.append(state)
        return torch.stack(states, dim=1)


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

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = self.lstm(self.embedding(tokens))
        logits: torch.Tensor = self.head(states[:, -1])
        return logits
