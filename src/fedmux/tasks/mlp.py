"""A multi-layer perceptron on flattened inputs; without hidden layers it is linear regression."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from fedmux.errors import FedmuxError


class Mlp(nn.Module):
    """Linear layers with ReLU between them: (batch, ...) to (batch, classes)."""

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (64,)) -> None:
        super().__init__()
        if not all(isinstance(size, int) and size > 0 for size in hidden):
            raise FedmuxError(f"hidden must be a list of positive integers, got {list(hidden)}")
        sizes = [inputs, *hidden, classes]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(inputs)
        return outputs
