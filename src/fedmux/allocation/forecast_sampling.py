"""Least variance from forecasts (`forecast`): nobody but the drawn clients trains or sends anything."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmux.allocation.balance import Balance, Weighing
from fedmux.allocation.fair_variance import FairTargets
from fedmux.allocation.forecast import Forecaster
from fedmux.allocation.lessons import Forecasts, Lesson, Lessons
from fedmux.allocation.optimal import checked
from fedmux.allocation.plan import Allocator, Draws, Probabilities, RoundState, Signal, Signals
from fedmux.allocation.variance_reduced import floored, mixed, sample
from fedmux.population import Bools, Floats


@dataclass(frozen=True)
class ForecastOptions:
    floor: float = 1e-3  # added to every score, as a fraction of the mean score
    mixing: float = 0.05  # share of Random in the probabilities: bounds the weights
    balance: Weighing = "load"
    report_share: float = 0.0  # of the clients asked for their losses each round
    draws: Draws = "dependent-rounding"
    remembers: bool = True  # whether the aggregator keeps updates as control variates


class ForecastSampling(Allocator):
    def __init__(self, options: ForecastOptions) -> None:
        self.options, self.mixing = options, options.mixing
        self.forecaster, self.balance = Forecaster(options.remembers), Balance(options.balance)
        signals: set[Signal] = {"loss"} if options.report_share > 0 else set()
        lessons: set[Lesson] = {"loss", "norm"}
        lessons |= {"memory"} if options.remembers else set()
        lessons |= {"step"} if options.balance == "step" else set()
        self.needs, self.learns = frozenset(signals), frozenset(lessons)

    def reporters(self, state: RoundState) -> Bools:
        return sample(state, self.options.report_share)

    def plan(self, state: RoundState) -> Probabilities:
        self.forecaster.meet(state)
        people, (scores, betas) = state.population, self._forecast(state)
        scores, *_ = checked(scores, people.capacity, people.available)
        scores = floored(self.balance.divided(scores, people), people.available, self.options.floor)
        plan = self.probabilities(state, scores)
        return replace(plan, betas=betas) if self.options.remembers else plan

    def _forecast(self, state: RoundState) -> tuple[Floats, Floats]:
        """U and the weights of stale updates (N x S each)."""
        people, scores = state.population, self.forecaster.norms(state)
        betas = self._stale(state, scores)
        scores *= people.shares  # 0 where a pair is not available
        scores /= np.maximum(people.capacity, 1)[:, None]
        return scores, betas

    def scores(self, state: RoundState) -> Floats:
        return self._forecast(state)[0]

    def forecasts(self, state: RoundState) -> Forecasts:
        forecaster, available = self.forecaster, state.population.available
        cosines = np.zeros(available.shape)
        for s in range(state.population.tasks):
            kept = forecaster.kept(s, available)
            cosines[kept, s] = forecaster.cosines(state.round, s, kept)
        norms, known = forecaster.norms(state) * state.learning_rates, ~np.isnan(forecaster.losses)
        return Forecasts(norms, cosines if self.options.remembers else None, known)

    def _stale(self, state: RoundState, norms: Floats) -> Floats:
        """The weight of each stale update (N x S); the norms become those of what it leaves of the update."""
        betas, forecaster = np.zeros(norms.shape), self.forecaster
        for s, rate in enumerate(state.learning_rates.tolist()):
            kept = forecaster.kept(s, state.population.available)
            cosines, own = forecaster.cosines(state.round, s, kept), norms[kept, s]
            betas[kept, s] = forecaster.betas(own * rate, s, kept, cosines)
            norms[kept, s] = own * np.sqrt(1 - forecaster.scored(cosines) ** 2)
        return betas

    def probabilities(self, state: RoundState, scores: Floats) -> Probabilities:
        return mixed(state, scores, self.options.mixing, self.options.draws)

    def learn(self, state: RoundState, lessons: Lessons) -> None:
        self.forecaster.learn(state, lessons)
        if lessons.moved is not None:
            self.balance.learn(lessons.moved / state.learning_rates)

    def forget(self, task: int) -> None:
        self.forecaster.forget(task)
        self.balance.forget(task)

    def notes(self) -> dict[str, Any]:
        return self.forecaster.notes()

    def state(self) -> dict[str, np.ndarray]:
        return self.forecaster.state() | self.balance.state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.forecaster.restore(state)
        self.balance.restore(state)


class FairForecastSampling(ForecastSampling):
    """The same at alpha-fair numbers of jobs."""

    def __init__(self, options: ForecastOptions, fair: FairTargets) -> None:
        super().__init__(options)
        self.fair = fair
        self.needs = self.needs | fair.needs - {"loss"}  # losses are those known

    def probabilities(self, state: RoundState, scores: Floats) -> Probabilities:
        losses = np.where(state.population.available, self.forecaster.losses, np.nan)
        known = replace(state, signals=Signals(losses=losses))
        return self.fair.plan(known, scores, self.options.draws)

    def notes(self) -> dict[str, Any]:
        return super().notes() | self.fair.notes()
