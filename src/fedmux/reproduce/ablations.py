"""Methods changed in one place, as some published code has them or to try a reason: what moves a figure.

None of them is registered; a preset or an experiment names them as `fedmux.reproduce.ablations:CLASS`.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedmux.allocation import Allocator
from fedmux.allocation.plan import RoundState, Signals
from fedmux.allocation.random import RandomAllocator
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.methods.memory import FedVarp
from fedmux.methods.variance_reduced import Lvr
from fedmux.population import Floats


class _LossToPowers(VarianceReduced):
    def __init__(self, options: ScoreOptions, loss: float, points: float) -> None:
        super().__init__("loss", options)
        self.powers = loss, points

    def score(self, state: RoundState, signals: Signals) -> Floats:
        """d |f|^a n^b / B."""
        assert signals.losses is not None
        loss, points = self.powers
        changed = replace(signals, losses=np.abs(signals.losses) ** loss)
        return super().score(state, changed) * state.population.sizes.clip(min=1) ** points


class LossToPowers(Lvr):
    """MMFL-LVR whose scores take a client's mean loss and number of points to other powers.

    Published code divides by the points once more: n^-1. Norms of updates, which GVR takes, grow with the
    points, that is with local steps, and less than in proportion to the loss: `benchmarks/scores.py`.
    """

    name: ClassVar[str] = "lvr-loss-to-powers"
    loss: float = Field(1.0, description="power of the mean loss")
    points: float = Field(0.0, description="power of the number of points")

    def allocator(self) -> Allocator:
        options = ScoreOptions(self.floor, self.mixing, self.normalise, self.report_share, draws=self.draws)
        return _LossToPowers(options, self.loss, self.points)


class FedVarpOneJob(FedVarp):
    """FedVARP that draws clients, not processors: B_i counts as 1 for everybody."""

    name: ClassVar[str] = "fedvarp-one-job"

    def allocator(self) -> Allocator:
        return RandomAllocator("clients")
