"""Allocators whose probabilities minimise the variance of the updates ([P1] section IV).

A score U_is says how much client i matters to task s. GVR: d ||G|| / (B eta), with the norm of the update
that every client computes each round. LVR: d |f| / B, with the loss before training, a forward pass. Either
way the probabilities are fixed before the draw, so inverse-probability weights keep the step unbiased for any
score: a better score only lowers the variance.
"""

from dataclasses import dataclass

import numpy as np

from fedmux.allocation.costs import cost_probabilities
from fedmux.allocation.optimal import checked, optimal_probabilities
from fedmux.allocation.plan import Allocator, Draws, Probabilities, RoundState, Signal, Signals
from fedmux.allocation.random import uniform_choice, uniform_entry
from fedmux.population import Bools, Floats
from fedmux.randomness import Stream


@dataclass(frozen=True)
class ScoreOptions:
    floor: float = 1e-3  # added to every score, as a fraction of the mean score
    mixing: float = 0.05  # share of Random in the probabilities: bounds the weights
    normalise: bool = False  # give each task the same expected load, if nobody is saturated
    report_share: float = 1.0  # of the clients asked for a score each round
    memory: float = 0.5  # weight of a new report against the remembered score, with report_share < 1
    draws: Draws = "independent"


class VarianceReduced(Allocator):
    """Optimal probabilities for scores made from one signal."""

    def __init__(self, signal: Signal, options: ScoreOptions) -> None:
        self.needs = frozenset({signal})
        self.signal, self.options = signal, options
        self.learns, self.mixing = options.report_share < 1, options.mixing
        self.known: Floats | None = None  # N x S: remembered scores, NaN where never seen
        self.load: Floats | None = None  # S: running mean of sum_i B_i U_is

    def reporters(self, state: RoundState) -> Bools:
        available = state.population.available
        if self.options.report_share >= 1:
            return available
        asked = state.rng(Stream.REPORTS).random(len(available)) < self.options.report_share
        return available & asked[:, None]

    def plan(self, state: RoundState) -> Probabilities:
        people = state.population
        scores, *_ = checked(self._scores(state), people.capacity, people.available)
        if self.options.normalise:
            load = people.processors @ scores
            before = np.full(len(load), np.nan) if self.load is None else self.load
            mixed_in = np.where(np.isnan(before), load, 0.9 * before + 0.1 * load)
            self.load = np.where(people.available.any(0), mixed_in, before)  # an absent task has no load
            scores /= np.where(self.load > 0, self.load, 1.0)
        mean = scores[people.available].mean() if people.available.any() else 0.0
        scores += self.options.floor * mean
        scores *= people.available
        return mixed(state, scores, self.options.mixing, self.options.draws)

    def _scores(self, state: RoundState) -> Floats:
        """U (N x S), an array of its own; with partial reports, remembered scores, or a task's largest for
        clients never seen."""
        available = state.population.available
        reported = self.scores(state)
        if self.options.report_share >= 1:
            return np.where(available, reported, 0.0)
        self._remember(reported)
        assert self.known is not None
        largest = np.nanmax(self.known, axis=0, initial=0.0)
        guess = np.where(np.isnan(self.known), np.where(largest > 0, largest, 1.0), self.known)
        return np.where(available, guess, 0.0)

    def scores(self, state: RoundState) -> Floats:
        return self.score(state, state.signals)

    def score(self, state: RoundState, signals: Signals) -> Floats:
        """U of the pairs that reported, NaN elsewhere."""
        people = state.population
        weight = people.shares / np.maximum(people.capacity, 1)[:, None]
        if self.signal == "loss":
            assert signals.losses is not None
            weight *= np.abs(signals.losses)
            return weight
        assert signals.norms is not None
        return weight * signals.norms / state.learning_rates

    def forget(self, task: int) -> None:
        for values in (self.known, self.load):
            if values is not None:
                values[..., task] = np.nan

    def learn(self, state: RoundState, seen: Signals) -> None:
        self._remember(self.score(state, seen))

    def _remember(self, reported: Floats) -> None:
        known = np.full(reported.shape, np.nan) if self.known is None else self.known
        rate = self.options.memory
        updated = np.where(np.isnan(known), reported, (1 - rate) * known + rate * reported)
        self.known = np.where(np.isnan(reported), known, updated)

    def state(self) -> dict[str, np.ndarray]:
        kept = {"known": self.known, "load": self.load}
        return {name: value for name, value in kept.items() if value is not None}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.known, self.load = (
            None if (kept := state.get(name)) is None else kept.copy() for name in ("known", "load")
        )


def mixed(state: RoundState, scores: Floats, mixing: float, draws: Draws) -> Probabilities:
    """Optimal probabilities for these scores, with a share of Random mixed in.

    (1 - g) p + g p_Random keeps the total and the rows, bounds p from below, and costs at most a factor
    1 / (1 - g) of the optimal variance. Where jobs load more than one processor, Random gives out fewer: no
    client's expected load exceeds its processors.
    """
    people = state.population
    jobs = state.budget.of_processors(people.total_processors)
    each = uniform_entry(people.available)  # of Random for a client's own tasks
    units = np.ones(people.tasks) if state.units is None else state.units
    if (state.costs == 1).all() and (units == 1).all():
        best = optimal_probabilities(scores, people.capacity, jobs, available=people.available)
        active = jobs / max(people.total_processors, 1)
    else:  # the budget is in costs: it can be more than there are processors
        jobs = jobs if state.budget.jobs is None else state.budget.jobs
        best = cost_probabilities(
            scores, people.capacity, jobs, state.costs, units=units, available=people.available
        )
        uniform = uniform_choice(people.available)
        if (units > 1).any():
            most = np.maximum(uniform @ units, 1.0)
            each, uniform = each / most, uniform / most[:, None]
        spend = float((people.processors @ uniform) @ state.costs)
        active = min(1.0, jobs / spend) if spend > 0 else 0.0
    costs = None if (state.costs == 1).all() else state.costs
    best *= 1 - mixing
    best += people.available * (mixing * active * each)[:, None]
    return Probabilities(best, people.processors, draws=draws, costs=costs)
