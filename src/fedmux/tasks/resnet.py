"""Pre-activation ResNet-18 with GroupNorm.

BatchNorm's running statistics are meaningless when models of heterogeneous clients are averaged, so each
normalisation sees one image only. The stem is a 3x3 convolution without pooling, for images of about 32x32.
"""

import math

import torch
from torch import nn

from fedmux.errors import FedmuxError


def _norm(channels: int, groups: int | None) -> nn.GroupNorm:
    """GroupNorm; by default 32 groups, or fewer to have at least two channels per group (if even)."""
    return nn.GroupNorm(groups or math.gcd(32, channels // 2, channels), channels)


class Block(nn.Module):
    """Two 3x3 convolutions, each after norm and ReLU, with a shortcut around both."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int | None) -> None:
        super().__init__()
        self.norm1 = _norm(inputs, groups)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm2 = _norm(outputs, groups)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if changes else None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        active = torch.relu(self.norm1(images))
        around = images if self.shortcut is None else self.shortcut(active)
        inner: torch.Tensor = self.conv2(torch.relu(self.norm2(self.conv1(active))))
        return inner + around


class ResNet18(nn.Module):
    """Four stages of two blocks, 64-128-256-512 channels wide: (batch, C, H, W) to (batch, classes)."""

    def __init__(self, channels: int, classes: int, width: int = 64, groups: int | None = None) -> None:
        super().__init__()
        if width < 1:
            raise FedmuxError(f"width must be > 0, got {width}")
        if groups is not None and (groups < 1 or width % groups):
            raise FedmuxError(f"groups must divide width = {width}, got {groups}")
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        blocks: list[Block] = []
        before = width
        for stage in range(4):
            after = width * 2**stage
            blocks += [Block(before, after, 2 if stage else 1, groups), Block(after, after, 1, groups)]
            before = after
        self.blocks = nn.Sequential(*blocks)
        self.norm = _norm(before, groups)
        self.head = nn.Linear(before, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.norm(self.blocks(self.stem(images))))
        logits: torch.Tensor = self.head(features.mean(dim=(-2, -1)))
        return logits
