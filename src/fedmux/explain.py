"""Why a method picks the clients it does: scores, probabilities, variances and forecasts in one round.

Variances are those of the aggregated step divided by the learning rate, [P1] Eq. 12: for each task the sum
over clients of d^2 / B ||X / eta||^2 (1 / p - 1). X is what the draw decides about: the update G, or under a
method with stale updates G - beta h, since beta h is in the step whoever is drawn. They need every client's
update: every client trains once.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedmux.aggregation import Aggregator
from fedmux.allocation import Assignment, Fixed, Forecasts, Plan, Probabilities, RoundState
from fedmux.allocation.contract import planned
from fedmux.allocation.forecast_check import Truth, What, beside, compared, seen
from fedmux.allocation.lessons import Lesson
from fedmux.allocation.variance_reduced import mixed
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.methods import options
from fedmux.population import Bools, Floats, Ints, Population
from fedmux.training.assembly import assemble
from fedmux.training.learning import Learning
from fedmux.training.training import Observer, Training


@dataclass(frozen=True, eq=False)
class Explanation:
    method: str
    round: int  # the one explained, from 1
    tasks: list[str]
    population: Population
    scores: Floats | None  # N x S: U, if the method uses scores
    probability: Floats  # N x S, of one processor
    processors: Ints  # N: how many times a client draws
    random: Floats  # N x S: Random's probabilities
    variance: Floats  # S: of this method's step; inf where it is not unbiased
    random_variance: Floats  # S: of the same step at Random's probabilities
    least_variance: Floats  # S: of it at the probabilities that minimise its sum over tasks
    fresh_variance: (
        Floats | None
    )  # S: without the stale updates, at the method's probabilities; None: it has none
    ceiling: float  # the largest load a client can have; mixing in Random keeps it below 1
    units: Floats  # S: load of a job on a processor
    truth: Truth
    forecasts: Forecasts | None  # of the updates, if the method makes any

    @property
    def expected(self) -> Floats:
        """N x S: expected jobs."""
        return self.processors[:, None] * self.probability

    @property
    def saturated(self) -> Bools:
        """N: clients whose load has reached its bound."""
        return (self.processors > 0) & (self.probability @ self.units >= self.ceiling - 1e-9)

    def table(self) -> dict[str, Any]:
        """Everything as JSON values."""
        people = self.population
        return {
            "method": self.method,
            "round": self.round,
            "clients": people.clients,
            "processors": people.total_processors,
            "jobs": float(self.expected.sum()),
            "rate_of_processors": float(self.expected.sum() / max(people.total_processors, 1)),
            "saturated": np.flatnonzero(self.saturated).tolist(),
            "tasks": {
                name: {
                    "expected_jobs": float(self.expected[:, s].sum()),
                    "variance": _number(self.variance[s]),
                    "random_variance": _number(self.random_variance[s]),
                    "least_variance": _number(self.least_variance[s]),
                    "fresh_variance": None
                    if self.fresh_variance is None
                    else _number(self.fresh_variance[s]),
                }
                for s, name in enumerate(self.tasks)
            },
            "scores": _numbers(self.scores),
            "probability": self.probability.tolist(),
            "expected_jobs": self.expected.tolist(),
            "norms": _numbers(self.truth.norms),
            "cosines": _numbers(self.truth.cosines),
            "forecasts": self._forecasts(),
        }

    def _forecasts(self) -> dict[str, Any] | None:
        found = self.forecasts
        if found is None:
            return None
        return {
            "tasks": {name: compared(found, self.truth, s) for s, name in enumerate(self.tasks)},
            "norms": _numbers(found.norms),
            "cosines": _numbers(found.cosines),
        }

    def beside(self, what: What, s: int) -> tuple[Floats, Floats] | None:
        """Forecasts of a task and the truth (N each, NaN where there is none), if there are any."""
        return None if self.forecasts is None else beside(self.forecasts, self.truth, what, s)

    def seen(self, s: int) -> Bools:
        """N: clients of which the method has seen something in a task, if it forecasts."""
        return np.zeros(self.population.clients, bool) if self.forecasts is None else seen(self.forecasts, s)


def explain(
    experiment: Experiment,
    rounds: int = 0,
    *,
    observers: Sequence[Observer] = (),
    notice: Callable[[str], None] = print,
) -> Explanation:
    """Explain the round after so many; these are trained in memory, by this process alone."""
    if not 0 <= rounds < experiment.rounds:
        raise FedmuxError(
            f"rounds: cannot train {rounds} and then explain the next; the experiment has "
            f"{experiment.rounds}, so take 0 to {experiment.rounds - 1}"
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    training = Training(experiment, assemble(experiment), None, observers)
    try:
        training.start(notice)
        _train(training, rounds, notice)
        return _explain(experiment, training)
    finally:
        torch.set_num_threads(threads)
        shutil.rmtree(training.scratch, ignore_errors=True)


def _train(training: Training, rounds: int, notice: Callable[[str], None]) -> None:
    state, began = training.state, time.perf_counter()
    while state.round < rounds and not training.over:
        training.advance(began)
    if state.watch.pausing.all():
        raise FedmuxError(
            f"every task has diverged by round {state.round}, so no round is left to explain; lower "
            "learning_rate or set clip"
        )
    if state.round < rounds:
        notice(f"the run reaches its target in round {state.round}: the round after that is explained")


def _explain(experiment: Experiment, training: Training) -> Explanation:
    state = training.state
    allocator, aggregator = state.allocator, state.aggregator
    training.guard.begin()
    # What is drawn beyond what is needed, in case some are late, makes no step.
    view = replace(training.driver.look(state)[0], budget=experiment.population.budget)
    plan = planned(allocator, view)
    view = replace(view, betas=getattr(plan, "betas", None))
    people, units = view.population, view.units
    assert units is not None
    truth, betas = true_updates(training, view), aggregator.stale_weights(view)
    probability, processors, marginal = expected(plan, people)
    # All references spend the same budget, task costs included.
    random = mixed(view, np.ones(people.sizes.shape), 1.0, "independent").probability
    left = np.nan_to_num(truth.left(betas)) / view.learning_rates
    best = mixed(view, people.shares * left / np.maximum(people.capacity, 1)[:, None], 0.0, "independent")

    def of_method(norms: Floats) -> Floats:
        found = variance(people, norms, marginal, processors)
        return found if experiment.method.unbiased else np.full(len(found), np.inf)

    return Explanation(
        method=options(experiment.method)["name"],
        round=state.round + 1,
        tasks=[task.name for task in training.fleet.tasks],
        population=people,
        scores=allocator.scores(view),
        probability=probability,
        processors=processors,
        random=random,
        variance=of_method(left),
        random_variance=variance(people, left, random, people.processors),
        least_variance=variance(people, left, best.probability, people.processors),
        fresh_variance=None if betas is None else of_method(np.nan_to_num(truth.norms) / view.learning_rates),
        ceiling=1 - allocator.mixing * (1 - float((random @ units).max(initial=0.0))),
        units=units,
        truth=truth,
        forecasts=allocator.forecasts(view),
    )


def true_updates(training: Training, view: RoundState) -> Truth:
    """Every pair that is there trains, as it would if it were drawn."""
    state, fleet, aggregator = training.state, training.fleet, training.state.aggregator
    people = view.population
    task, client = np.nonzero(people.available.T)
    ones = np.ones(len(task))
    jobs = Assignment(client, task, ones.astype(np.int64), ones, ones)
    keeps = type(aggregator).stale is not Aggregator.stale
    wanted: frozenset[Lesson] = frozenset({"norm", "memory"} if keeps else {"norm"})
    learning = Learning(wanted, jobs, aggregator.stale, fleet.release)
    arrived = np.zeros(len(jobs), bool)
    for updates in fleet.train(state.models, jobs, state.round, aggregator.local_rule):
        learning.note(updates)
        arrived[updates.rows] = True
    seen = learning.lessons(arrived, state.models, state.models, training.team)
    norms, cosines, lengths = (
        seen.over_pairs(values, people.sizes.shape) for values in (seen.norms, seen.cosines, seen.before)
    )
    assert norms is not None
    return Truth(norms, cosines, lengths)


def expected(plan: Plan, people: Population) -> tuple[Floats, Ints, Floats]:
    """A plan's probabilities (N x S), draws per client (N), and the divisors of the weights (N x S)."""
    if isinstance(plan, Probabilities):
        return plan.probability, plan.processors, plan.probability if plan.marginal is None else plan.marginal
    assert isinstance(plan, Fixed)
    probability = np.zeros(people.sizes.shape)
    probability[plan.client, plan.task] = 1.0
    return probability, np.where(people.available.any(1), 1, 0), probability


def variance(people: Population, norms: Floats, probability: Floats, processors: Ints) -> Floats:
    """[P1] Eq. 12 for each task: sum_i d^2 / B ||X||^2 (1 / p - 1)."""
    weight = (people.shares * norms) ** 2 / np.maximum(processors, 1)[:, None]
    with np.errstate(divide="ignore"):
        spread = np.where(weight > 0, 1 / probability - 1, 0.0)
    return (weight * np.maximum(spread, 0.0)).sum(0)


def _numbers(values: Floats | None) -> list[list[float | None]] | None:
    return None if values is None else [[_number(value) for value in row] for row in values.tolist()]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
