"""Expected jobs in proportion to data, drawn by clusters (Fraboni et al. 2021, Algorithm 1).

A client that would then get more jobs than it has processors gets as many as it has, the others more.
"""

import numpy as np

from fedmux.allocation.per_task import probabilities_by_task
from fedmux.allocation.plan import Allocator, Probabilities, RoundState


class ByData(Allocator):
    def plan(self, state: RoundState) -> Probabilities:
        people = state.population
        scores = people.shares / np.maximum(people.capacity, 1)[:, None]
        return Probabilities(probabilities_by_task(state, scores), people.processors, draws="clustered")
