"""Allocators whose probabilities minimise the variance of the updates ([P1] section IV).

A score U_is says how much client i matters to task s. GVR: d ||G|| / (B eta), with the norm of the update
that every client computes each round. LVR: d |f| / B, with the loss before training, a forward pass. Either
way the probabilities are fixed before the draw, so inverse-probability weights keep the step unbiased for any
score: a better score only lowers the variance.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedmux.allocation.balance import Balance
from fedmux.allocation.costs import cost_probabilities
from fedmux.allocation.lessons import Lesson, Lessons
from fedmux.allocation.optimal import checked, optimal_probabilities
from fedmux.allocation.plan import Allocator, Draws, Probabilities, RoundState, Signal, Signals
from fedmux.allocation.random import uniform_choice, uniform_entry
from fedmux.population import Bools, Floats
from fedmux.randomness import Stream

# What an update shows in place of each signal, of clients that were not asked.
LESSONS: dict[Signal, frozenset[Lesson]] = {
    "loss": frozenset({"loss"}),
    "norm": frozenset({"norm"}),
    "residual": frozenset({"memory"}),
    "projection": frozenset(),  # its betas must be known before the draw
}


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
        self.learns = LESSONS[signal] if options.report_share < 1 else frozenset()
        self.mixing = options.mixing
        self.known: Floats | None = None  # N x S: remembered scores, NaN where never seen
        self.balance = Balance("load" if options.normalise else "scores")

    def reporters(self, state: RoundState) -> Bools:
        return sample(state, self.options.report_share)

    def plan(self, state: RoundState) -> Probabilities:
        people = state.population
        scores, *_ = checked(self._scores(state), people.capacity, people.available)
        scores = floored(self.balance.divided(scores, people), people.available, self.options.floor)
        plan = mixed(state, scores, self.options.mixing, self.options.draws)
        betas = state.signals.betas
        return plan if betas is None else replace(plan, betas=np.nan_to_num(betas))

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
        return self.score(state, self._as_sent(state))

    def _as_sent(self, state: RoundState) -> Signals:
        """Reports have no noise. Where norms are also learned from updates, which have, it is added."""
        signals = state.signals
        if not self.learns or state.noise is None or signals.norms is None:
            return signals
        return replace(signals, norms=np.hypot(signals.norms, state.noise))

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
        if self.known is not None:
            self.known[:, task] = np.nan
        self.balance.forget(task)

    def learn(self, state: RoundState, lessons: Lessons) -> None:
        """From those that had not been asked."""
        shape = state.population.sizes.shape
        norms = lessons.residuals if self.signal == "residual" else lessons.norms
        seen = Signals(lessons.over_pairs(lessons.losses, shape), lessons.over_pairs(norms, shape))
        asked = state.signals.losses if self.signal == "loss" else state.signals.norms
        self._remember(self.score(state, seen if asked is None else seen.where(np.isnan(asked))))

    def _remember(self, reported: Floats) -> None:
        known = np.full(reported.shape, np.nan) if self.known is None else self.known
        rate = self.options.memory
        updated = np.where(np.isnan(known), reported, (1 - rate) * known + rate * reported)
        self.known = np.where(np.isnan(reported), known, updated)

    def state(self) -> dict[str, np.ndarray]:
        known = {} if self.known is None else {"known": self.known}
        return known | self.balance.state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.known = state["known"].copy() if "known" in state else None
        self.balance.restore(state)


def sample(state: RoundState, share: float) -> Bools:
    """N x S: all pairs of a share of the clients, drawn anew in each round."""
    available = state.population.available
    if share >= 1:
        return available
    asked = state.rng(Stream.REPORTS).random(len(available)) < share
    return available & asked[:, None]


def floored(scores: Floats, available: Bools, floor: float) -> Floats:
    """Scores (0 where not available) to each of which a fraction of their mean is added, in place, so that
    nobody's chance is 0."""
    mean = scores.sum() / max(np.count_nonzero(available), 1)
    scores += floor * mean
    scores *= available
    return scores


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
