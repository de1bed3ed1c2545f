"""Least variance by losses, with weights of stale updates that fade (MMFL-StaleVRE, a later version of [P1]).

The best weight of client i's stale update h is beta* = <G, h> / ||h||^2, which is known of clients that train
only. As a guess for the others it falls along a line while h ages: if client i trained last in round r,

    beta_is = beta_0 - k_is (round - r - 1),  within 0 and 1,   k_is = (beta_0 - beta*) / (rounds since h)

where k_is was found when the client trained last, and is 0 if it then had no h. So beta is fixed before the
draw, and clients do no work for it.
"""

from dataclasses import replace

import numpy as np

from fedmux.allocation.lessons import Lessons
from fedmux.allocation.plan import Probabilities, RoundState
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.population import Floats

NEVER = -1


class DecayingBetas(VarianceReduced):
    def __init__(self, beta: float, options: ScoreOptions) -> None:
        super().__init__("loss", options)
        self.learns = self.learns | {"memory"}
        self.beta = beta
        self.last = np.zeros((0, 0), np.int64)  # N x S: round in which h was sent
        self.slope = np.zeros((0, 0))  # N x S: k

    def plan(self, state: RoundState) -> Probabilities:
        if not self.last.size:
            self.last = np.full(state.population.sizes.shape, NEVER)
            self.slope = np.zeros(self.last.shape)
        return replace(super().plan(state), betas=self.betas(state.round))

    def betas(self, round: int) -> Floats:
        """N x S; 0 where there is no h."""
        age = round - self.last - 1
        return np.where(self.last == NEVER, 0.0, np.clip(self.beta - self.slope * age, 0.0, 1.0))

    def learn(self, state: RoundState, lessons: Lessons) -> None:
        if "loss" in self.learns:
            super().learn(state, lessons)
        norms, cosines, before = lessons.norms, lessons.cosines, lessons.before
        assert norms is not None and cosines is not None and before is not None
        pairs = lessons.client, lessons.task
        known = (before > 0) & (self.last[pairs] != NEVER)
        best = np.divide(cosines * norms, before, out=np.zeros(len(before)), where=known)
        age = state.round - self.last[pairs]
        self.slope[pairs] = np.where(known, (self.beta - best) / np.maximum(age, 1), self.slope[pairs])
        self.last[pairs] = state.round

    def forget(self, task: int) -> None:
        super().forget(task)
        if self.last.size:
            self.last[:, task], self.slope[:, task] = NEVER, 0.0

    def state(self) -> dict[str, np.ndarray]:
        return {**super().state(), "last": self.last, "slope": self.slope}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        super().restore(state)
        if "last" in state:
            self.last, self.slope = state["last"].copy(), state["slope"].copy()
