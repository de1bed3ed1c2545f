"""The convolutional network of the papers' image tasks, and a small one for quick runs on a CPU."""

from typing import ClassVar

import torch
from torch import nn

from fedmux.errors import FedmuxError


class Cnn(nn.Module):
    """Two convolutions with ReLU and pooling, two linear layers: (batch, C, H, W) to (batch, classes)."""

    filters: ClassVar[tuple[int, int]] = (32, 64)
    hidden: ClassVar[int] = 512

    def __init__(self, channels: int, height: int, width: int, classes: int, kernel_size: int = 3) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise FedmuxError(f"kernel_size must be odd and > 0, got {kernel_size}")
        first, second = self.filters
        padding = kernel_size // 2  # keeps height and width, so that each pooling halves them
        self.layers = nn.Sequential(
            nn.Conv2d(channels, first, kernel_size, padding=padding),
            nn.MaxPool2d(2),
            nn.ReLU(),  # after pooling: the same result on a quarter of the values
            nn.Conv2d(first, second, kernel_size, padding=padding),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * (height // 4) * (width // 4), self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.is_cpu:
            # Channels last, where max_pool2d is 16 times faster; vmap rejects `.to(memory_format=...)`.
            images = images.movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)
        logits: torch.Tensor = self.layers(images)
        return logits


class CnnSmall(Cnn):
    """The same network with 8 and 16 filters and a linear layer of 64."""

    filters = (8, 16)
    hidden = 64
