"""Least variance from forecasts (`forecast`): nobody but the drawn clients trains or sends anything."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmux.allocation.balance import Balance, Weighing
from fedmux.allocation.fair_variance import FairTargets
from fedmux.allocation.forecast import Forecaster
from fedmux.allocation.lessons import Lesson, Lessons
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
        people, norms = state.population, self.forecaster.norms(state)
        cosines = self.forecaster.cosines(state.round)
        weight = people.shares / np.maximum(people.capacity, 1)[:, None]
        scores, *_ = checked(
            weight * norms * np.sqrt(1 - self.forecaster.scored(cosines) ** 2),
            people.capacity,
            people.available,
        )
        scores = self.balance.divided(np.where(people.available, scores, 0.0), people)
        plan = self.probabilities(state, floored(scores, people.available, self.options.floor))
        if not self.options.remembers:
            return plan
        return replace(plan, betas=self.forecaster.betas(norms, cosines, state.learning_rates))

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
