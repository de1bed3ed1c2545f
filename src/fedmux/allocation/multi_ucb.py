"""Multi-UCB with rank lists (Bhuyan and Moharir 2022): clients are picked by optimistic guesses of a loss.

An arm is a pair of client and task, its reward the loss before training that the client sends with its
update. With sums over past rounds that are discounted by gamma a round (L of losses, N of jobs, T of rounds),

    A_is = d_is (L_is / N_is + c sqrt(2 log T / N_is))

and tasks take turns at picking the client with their largest A. Pairs that were never tried come first. A job
that does not come back counts with a loss of 0, or it would be given out again and again. The index is that
of UCB-CS (Cho, Gupta, Joshi and Yagan 2020) for one task.
"""

import numpy as np

from fedmux.allocation.lessons import Lessons
from fedmux.allocation.plan import Allocator, Fixed, RoundState
from fedmux.allocation.turns import in_turns
from fedmux.population import Floats


class MultiUcbAllocator(Allocator):
    learns = frozenset({"loss"})

    def __init__(self, discount: float, exploration: float, warm_start: bool) -> None:
        self.discount, self.exploration, self.warm_start = discount, exploration, warm_start
        self.losses = self.jobs = np.zeros((0, 0))  # N x S: L and N
        self.rounds = np.zeros(0)  # S: T
        self.warmed = np.zeros(0, bool)  # S: everybody has trained the task once

    def plan(self, state: RoundState) -> Fixed:
        people = state.population
        if not self.losses.size:
            self.losses, self.jobs = np.zeros((2, *people.sizes.shape))
            self.rounds = np.zeros(people.tasks)
            self.warmed = np.full(people.tasks, not self.warm_start)
        cold = np.flatnonzero(~self.warmed & people.available.any(0))
        if len(cold):
            client = np.flatnonzero(people.available[:, cold[0]])
            plan = Fixed(client, np.full(len(client), cold[0]))
            self.warmed[cold[0]] = True
        else:
            plan = in_turns(state, self.index(people.shares), people.available)
        self.losses, self.jobs = self.discount * self.losses, self.discount * self.jobs
        self.rounds = 1 + self.discount * self.rounds
        self.jobs[plan.client, plan.task] += 1
        return plan

    def index(self, shares: Floats) -> Floats:
        """A (N x S)."""
        tried = self.jobs > 0
        jobs = np.where(tried, self.jobs, 1.0)
        bonus = self.exploration * np.sqrt(2 * np.log(np.maximum(self.rounds, 1.0)) / jobs)
        return np.where(tried, shares * (self.losses / jobs + bonus), np.inf)

    def learn(self, state: RoundState, lessons: Lessons) -> None:
        assert lessons.losses is not None
        self.losses[lessons.client, lessons.task] += lessons.losses

    def forget(self, task: int) -> None:
        for values in (self.losses, self.jobs, self.rounds):
            values[..., task : task + 1] = 0.0
        self.warmed[task : task + 1] = not self.warm_start

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in ("losses", "jobs", "rounds", "warmed")}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if state:
            for name, value in state.items():
                setattr(self, name, value.copy())
