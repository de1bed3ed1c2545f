"""Power-of-choice (Cho, Wang and Joshi 2020, pow-d): of d candidates those with the largest losses train.

Candidates are drawn without replacement, each draw in proportion to data, and report their loss on the global
model. The paper has one task; here each has candidates of its own and they pick in turns.
"""

import numpy as np

from fedmux.allocation.plan import Allocator, Fixed, RoundState
from fedmux.allocation.turns import in_turns
from fedmux.population import Bools
from fedmux.randomness import Stream


class PowerOfChoiceAllocator(Allocator):
    needs = frozenset({"loss"})

    def __init__(self, candidates: float) -> None:
        self.candidates = candidates  # d / m

    def reporters(self, state: RoundState) -> Bools:
        """The candidates: for each task those with the d smallest of exponential times at rates d_is."""
        people = state.population
        tasks = np.flatnonzero(people.available.any(0))
        jobs = state.budget.of_clients(people.total_processors)
        number = int(np.ceil(self.candidates * jobs / max(len(tasks), 1)))
        waited = state.rng(Stream.REPORTS).exponential(size=people.sizes.shape)
        times = np.divide(waited, people.shares, out=np.full(waited.shape, np.inf), where=people.shares > 0)
        asked = np.zeros_like(people.available)
        for task in tasks:
            asked[np.argsort(times[:, task], kind="stable")[:number], task] = True
        return asked & people.available

    def plan(self, state: RoundState) -> Fixed:
        losses = state.signals.losses
        assert losses is not None
        return in_turns(state, losses, self.reporters(state) & ~np.isnan(losses))
