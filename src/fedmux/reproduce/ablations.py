"""Methods changed in one place, as some published code has them or to try a reason: what moves a figure.

None of them is registered; a preset or an experiment names them as `fedmux.reproduce.ablations:CLASS`.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedmux.allocation import Allocator
from fedmux.allocation.forecast import PRIOR, Forecaster
from fedmux.allocation.forecast_sampling import ForecastSampling
from fedmux.allocation.plan import RoundState, Signals
from fedmux.allocation.random import RandomAllocator
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.methods.forecast import Forecast
from fedmux.methods.memory import FedVarp
from fedmux.methods.variance_reduced import Lvr
from fedmux.population import Floats, Ints


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


Slopes = Literal["learned", "prior", "loss"]


class _PartlyForecasting(Forecaster):
    """With slopes that are not learned, betas of 1, or scores that take no notice of what is kept."""

    def __init__(self, remembers: bool, slopes: Slopes, score_by_cosine: bool, forecast_beta: bool) -> None:
        super().__init__(remembers)
        self.slopes, self.score_by_cosine, self.forecast_beta = slopes, score_by_cosine, forecast_beta

    def coefficients(self) -> Floats:
        """With slopes that are given, only the level a is fitted: what is left over on average."""
        if self.slopes == "learned":
            return super().coefficients()
        b, e = (1.0, 0.0) if self.slopes == "loss" else PRIOR[1:]
        level = (self.product[:, 0] - self.square[:, 0, 1:] @ np.array([b, e])) / self.square[:, 0, 0]
        return np.stack([level, np.full(len(level), b), np.full(len(level), e)], axis=1)

    def scored(self, cosines: Floats) -> Floats:
        return cosines if self.score_by_cosine else np.zeros(cosines.shape)

    def betas(self, norms: Floats, task: int, kept: Ints, cosines: Floats) -> Floats:
        return super().betas(norms, task, kept, cosines) if self.forecast_beta else np.ones(norms.shape)


class PartlyForecast(Forecast):
    """mmfl-forecast with one of its parts put out of action."""

    name: ClassVar[str] = "mmfl-partly-forecast"
    slopes: Slopes = Field("learned", description="of the norms: fitted, those assumed at first, or 1 and 0")
    score_by_cosine: bool = Field(True, description="false: scores are norms of updates, whatever is kept")
    forecast_beta: bool = Field(True, description="false: every stale update counts once")

    def allocator(self) -> Allocator:
        allocator = ForecastSampling(self.options(self.mixing))
        parts = self.slopes, self.score_by_cosine, self.forecast_beta
        allocator.forecaster = _PartlyForecasting(self.stale, *parts)
        return allocator
