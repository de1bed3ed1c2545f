"""What the scores of one task count beside those of another."""

from typing import Literal, get_args

import numpy as np

from fedmux.population import Floats, Population

Weighing = Literal["scores", "load", "step"]
WEIGHINGS = get_args(Weighing)

PAST_LOAD, PAST_STEP = 0.9, 0.8  # weight of the past in the running means


class Balance:
    """Divides each task's scores by a figure of the task: nothing, its load, or how far its model moves.

    scores: as they are, so that the sum of the tasks' variances is least. load: by the running mean of
    sum_i B_i U_is, so that tasks get the same expected jobs while nobody is saturated. step: by the running
    mean of the norm of the task's steps, so that variances count relative to how far models move; by loads
    until every task has moved.
    """

    def __init__(self, by: Weighing) -> None:
        self.by = by
        self.load: Floats | None = None  # S, NaN: not known
        self.step: Floats | None = None

    def divided(self, scores: Floats, people: Population) -> Floats:
        """The scores (N x S, 0 where a pair is not available), weighed against each other."""
        if self.by == "scores":
            return scores
        here = people.available.any(0)
        self.load = running(self.load, np.where(here, people.processors @ scores, np.nan), PAST_LOAD)
        known = self.by == "step" and self.step is not None and not np.isnan(self.step[here]).any()
        divisor = self.step if known else self.load
        assert divisor is not None
        return scores / np.where(divisor > 0, divisor, 1.0)

    def learn(self, moved: Floats) -> None:
        """How far each model moved (S), over the learning rate; NaN or 0: it did not."""
        self.step = running(self.step, np.where(moved > 0, moved, np.nan), PAST_STEP)

    def forget(self, task: int) -> None:
        for values in (self.load, self.step):
            if values is not None:
                values[task] = np.nan

    def state(self) -> dict[str, np.ndarray]:
        kept = {"load": self.load, "step": self.step}
        return {name: value for name, value in kept.items() if value is not None}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.load, self.step = (
            None if (kept := state.get(name)) is None else kept.copy() for name in ("load", "step")
        )


def running(mean: Floats | None, new: Floats, past: float) -> Floats:
    """A running mean, begun by the first value; NaN: nothing new."""
    before = np.full(len(new), np.nan) if mean is None else mean
    mixed_in = np.where(np.isnan(before), new, past * before + (1 - past) * new)
    return np.where(np.isnan(new), before, mixed_in)
