"""What a round teaches an allocator: one row for each job whose update arrived. And what it had forecast."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedmux.population import Bools, Floats, Ints

Lesson = Literal["loss", "norm", "memory", "step"]


@dataclass(frozen=True, eq=False)
class Lessons:
    """G is the update as the server got it, h what the aggregator kept of the client until then.

    An allocator names in `learns` which of these it wants: `losses` come with the update, at the price of a
    forward pass; the server sees the rest for itself. None: not asked for.
    """

    client: Ints  # J
    task: Ints  # J
    losses: Floats | None = None  # J, "loss": mean loss over the client's own points, before training
    norms: Floats | None = None  # J, "norm": ||G||
    cosines: Floats | None = None  # J, "memory": between G and h; 0 where there is no h
    before: Floats | None = None  # J, "memory": ||h||
    after: Floats | None = None  # J, "memory": norm of what is kept of the client from now on
    moved: Floats | None = None  # S, "step": how far each model moved, the norm of its step

    @property
    def residuals(self) -> Floats | None:
        """J: ||G - h||."""
        if self.norms is None or self.cosines is None or self.before is None:
            return None
        square = self.norms**2 + self.before**2 - 2 * self.cosines * self.norms * self.before
        return np.sqrt(np.maximum(square, 0.0))

    def over_pairs(self, values: Floats | None, shape: tuple[int, int]) -> Floats | None:
        """One of the columns as N x S, NaN where no update arrived."""
        if values is None:
            return None
        pairs = np.full(shape, np.nan)
        pairs[self.client, self.task] = values
        return pairs


@dataclass(frozen=True, eq=False)
class Forecasts:
    """What an allocator forecasts of the update that each pair would send, in the terms of `Lessons`."""

    norms: Floats  # N x S: ||G||
    cosines: Floats | None = None  # N x S: between G and h, where there is an h; None: it forecasts none
    known: Bools | None = (
        None  # N x S: pairs of which it has seen something; the others are guesses. None: all
    )
