"""Round robin (Bhuyan & Moharir, as the baseline of [P2] section VI): tasks rotate over random subsets.

A frame has as many rounds as there are tasks when it starts. The clients then present are dealt at random
into as many subsets, whose sizes differ by at most one; in the frame's round r subset j works on task
(j + r) mod S. A client without that task takes its next one in cyclic order; a client without any sits out.
Clients that appear later are dealt too, starting at a random subset, and stay there until the frame ends; a
task that joins waits for the next frame.
"""

import numpy as np

from fedmux.allocation.plan import Allocator, Probabilities, RoundState
from fedmux.allocation.random import Participation, spread
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream, generator


def deal(clients: int, subsets: int, rng: np.random.Generator) -> Ints:
    """Subset of each client (n): a random permutation dealt out cyclically."""
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
        self.frame = self.start = -1  # the frame's number, and its first round
        self.tasks = np.zeros(0, np.int64)  # T: present when the frame started
        self.subset = np.zeros(0, np.int64)  # N: of the frame, -1 for clients not yet dealt
        self.odds = np.zeros((0, 0))  # N x T: how likely the deal put a client into each subset

    def plan(self, state: RoundState) -> Probabilities:
        available = state.population.available
        choice = np.zeros((2, *available.shape))
        if available.any():
            self._begin(state)
            self._deal(state)
            tasks, turn = len(self.tasks), state.round - self.start
            own = np.where((self.subset >= 0)[:, None], next_own(available[:, self.tasks]), -1)
            dealt = own[np.arange(len(own)), (self.subset + turn) % tasks]
            choice[0][:, self.tasks] = _one_hot(dealt, tasks)
            for subset in range(tasks):
                chance = self.odds[:, [subset]] * _one_hot(own[:, (subset + turn) % tasks], tasks)
                choice[1][:, self.tasks] += chance
        return spread(state, choice[0], self.participation, choice[1])

    def _begin(self, state: RoundState) -> None:
        """Start a new frame if the last one is over or its tasks are gone; its first round deals anew."""
        people = state.population
        present = np.flatnonzero(people.available.any(0))
        inside = len(self.subset) == people.clients and self.start < state.round < self.start + len(
            self.tasks
        )
        if inside and np.isin(self.tasks, present).any():
            return
        if self.frame < 0:  # as if all earlier frames had had this length
            self.frame, turn = divmod(state.round, len(present))
            self.start = state.round - turn
        elif state.round != self.start:
            self.frame, self.start = self.frame + 1, state.round
        self.tasks = present
        self.subset = np.full(people.clients, -1, np.int64)
        self.odds = np.zeros((people.clients, len(present)))

    def _deal(self, state: RoundState) -> None:
        """Put each client that is present for a task of the frame, and has no subset yet, into one."""
        tasks, first = len(self.tasks), not (self.subset >= 0).any()
        new = np.flatnonzero((self.subset < 0) & state.population.available[:, self.tasks].any(1))
        if first and len(new) >= tasks:
            subset = deal(len(new), tasks, generator(state.seed, Stream.DEAL, round=self.frame))
            self.odds[new] = np.bincount(subset, minlength=tasks) / len(new)
        else:  # even few clients may land in any subset; task=1 separates rounds from frames
            rng = generator(state.seed, Stream.DEAL, round=state.round, task=1)
            subset = (deal(len(new), tasks, rng) + rng.integers(tasks)) % tasks
            self.odds[new] = 1 / tasks
        self.subset[new] = subset

    def state(self) -> dict[str, np.ndarray]:
        where = np.array([self.frame, self.start])
        return {"where": where, "tasks": self.tasks, "subset": self.subset, "odds": self.odds}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if state:
            self.frame, self.start = (int(value) for value in state["where"])
            self.tasks, self.subset, self.odds = (state[key].copy() for key in ("tasks", "subset", "odds"))


def _one_hot(task: Ints, tasks: int) -> Floats:
    return (task[:, None] == np.arange(tasks)).astype(np.float64)
