"""Full participation: every client trains every task it has, every round ([P1] section VII's upper bound)."""

import numpy as np

from fedmux.allocation.plan import Allocator, Fixed, RoundState


class FullAllocator(Allocator):
    def plan(self, state: RoundState) -> Fixed:
        task, client = np.nonzero(state.population.available.T)
        return Fixed(client, task, beyond_capacity=True)
