"""A method of your own: every client leans towards the tasks on which its loss is largest."""

from typing import ClassVar

import numpy as np
from pydantic import Field

import fedmux


class LossFirstAllocator(fedmux.Allocator):
    needs = frozenset({"loss"})

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def plan(self, state: fedmux.RoundState) -> fedmux.Plan:
        available = state.population.available  # N x S
        losses = np.where(available, np.abs(state.signals.losses), 0)
        total = losses.sum(1, keepdims=True)
        fair = fedmux.uniform_choice(available)
        by_loss = np.divide(losses, total, out=fair.copy(), where=total > 0)
        return fedmux.spread(state, (1 - self.uniform) * by_loss + self.uniform * fair, "processors")


class LossFirst(fedmux.Method):
    """Everybody equally likely; one's own tasks in proportion to the loss on them."""

    unbiased_when: ClassVar[dict[str, object] | None] = {}

    uniform: float = Field(0.1, gt=0, le=1, description="part of the choice that ignores the loss")

    def allocator(self) -> fedmux.Allocator:
        return LossFirstAllocator(self.uniform)

    def aggregator(self) -> fedmux.Aggregator:
        return fedmux.Unbiased()
