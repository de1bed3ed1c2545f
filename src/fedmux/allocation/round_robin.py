"""Round robin (Bhuyan & Moharir, as the baseline of [P2] section VI): tasks rotate over random subsets.

Every frame of S rounds deals a random permutation of all clients into S subsets whose sizes differ by at
most one; in the frame's round r subset j works on task (j + r) mod S. A client without that task takes its
next one in cyclic order; a client without any sits out.
"""

import numpy as np

from fedmux.allocation.plan import Allocator, Probabilities, RoundState
from fedmux.allocation.random import Participation, spread
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream


def deal(clients: int, subsets: int, rng: np.random.Generator) -> Ints:
    """Subset of each client (N): a random permutation dealt out in turn."""
    subset = np.empty(clients, np.int64)
    subset[rng.permutation(clients)] = np.arange(clients) % subsets
    return subset


def next_own(available: Bools) -> Ints:
    """N x S: the first task at or cyclically after s that the client has; -1 without any."""
    tasks = available.shape[1]
    result = np.full(available.shape, -1, np.int64)
    for step in range(tasks):
        candidate = (np.arange(tasks) + step) % tasks
        result = np.where((result < 0) & available[:, candidate], candidate, result)
    return result


class RoundRobinAllocator(Allocator):
    def __init__(self, participation: Participation) -> None:
        self.participation = participation

    def plan(self, state: RoundState) -> Probabilities:
        present = np.flatnonzero(state.population.available.any(0))  # tasks come and go
        available = state.population.available[:, present]
        clients, tasks = available.shape
        choice = np.zeros((2, clients, state.population.tasks))
        if tasks:
            frame, turn = divmod(state.round, tasks)
            own = next_own(available)
            subset = deal(clients, tasks, state.rng(Stream.DEAL, round=frame))
            dealt = own[np.arange(clients), (subset + turn) % tasks]
            choice[0][:, present], choice[1][:, present] = _one_hot(dealt, tasks), _chance(own, turn)
        return spread(state, choice[0], self.participation, choice[1])


def _one_hot(task: Ints, tasks: int) -> Floats:
    return (task[:, None] == np.arange(tasks)).astype(np.float64)


def _chance(own: Ints, turn: int) -> Floats:
    """N x S: probability, over the deal, that a client works on each task in this turn."""
    clients, tasks = own.shape
    chance = np.zeros((clients, tasks))
    for subset in range(tasks):
        size = len(range(subset, clients, tasks))
        chance += size / clients * _one_hot(own[:, (subset + turn) % tasks], tasks)
    return chance
