"""One task at a time: the naive baseline of [P1] and [P2], all clients on one task for a block of rounds."""

import numpy as np

from fedmux.allocation.plan import Allocator, Probabilities, RoundState
from fedmux.allocation.random import Participation, spread
from fedmux.population import Floats


class SequentialAllocator(Allocator):
    def __init__(self, participation: Participation, block: int | None) -> None:
        self.participation = participation
        self.block = block  # rounds per task before moving to the next; None: the run divided evenly

    def plan(self, state: RoundState) -> Probabilities:
        available = state.population.available
        block = self.block or -(-state.rounds // state.population.tasks)
        present = np.flatnonzero(available.any(0))  # tasks come and go
        choice: Floats = np.zeros(available.shape)
        if len(present):
            task = present[state.round // block % len(present)]
            choice[:, task] = available[:, task]
        return spread(state, choice, self.participation)
