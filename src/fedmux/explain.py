"""Why a method picks whom: scores, probabilities and variances of an experiment's first round.

Variances are of the aggregated step divided by the learning rate, [P1] Eq. 12: for each task the sum over
clients of d^2 / B ||G / eta||^2 (1 / p - 1). They need every client's update, so every client trains once.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedmux.allocation import Fixed, Probabilities, RoundState, Signals
from fedmux.allocation.variance_reduced import VarianceReduced, mixed
from fedmux.experiment import Experiment
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.methods import Method, options
from fedmux.population import Bools, Floats, Ints, Population
from fedmux.training.setting import assemble
from fedmux.training.training import engine_of


@dataclass(frozen=True, eq=False)
class Explanation:
    method: str
    tasks: list[str]
    population: Population
    scores: Floats | None  # N x S: U, where the method has scores
    probability: Floats  # N x S, of one processor
    processors: Ints  # N: how many times a client draws
    random: Floats  # N x S: Random's probabilities
    variance: Floats  # S: of this method; inf where it is not unbiased
    random_variance: Floats  # S
    least_variance: Floats  # S: where the sum over tasks is least, for the true norms
    ceiling: float  # the largest load a client can have: 1, less what is mixed with Random
    units: Floats  # S: what a job takes of a processor

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
                }
                for s, name in enumerate(self.tasks)
            },
            "scores": None
            if self.scores is None
            else [[_number(score) for score in row] for row in self.scores.tolist()],
            "probability": self.probability.tolist(),
            "expected_jobs": self.expected.tolist(),
        }


def explain(experiment: Experiment) -> Explanation:
    """Look at round 0 of an experiment without changing anything."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _explain(experiment)
    finally:
        torch.set_num_threads(threads)


def _explain(experiment: Experiment) -> Explanation:
    setting = assemble(experiment)
    people = setting.in_round(0)
    fleet = SimulatedFleet(setting.tasks, experiment.seed, engine_of(experiment))
    models = [task.layout.read() for task in fleet.tasks]
    method, _ = experiment.method.fitted(experiment.metrics)
    allocator = method.allocator()
    # In the first round nobody has sent anything: the norm is the residual, and every projection is 0.
    signals = fleet.signals(models, {"loss", "norm"}, 0, people.available, method.aggregator().stale)
    if signals.silent is not None:  # not drawn, as in a run
        people = replace(people, eligible=people.eligible & ~signals.silent)
    assert signals.norms is not None
    units = np.array([settings.units for settings in experiment.tasks])
    state = RoundState(
        round=0,
        rounds=experiment.rounds,
        seed=experiment.seed,
        population=people,
        budget=experiment.population.budget,
        learning_rates=np.array([task.learning_rate(0) for task in setting.tasks]),
        costs=np.array([settings.cost for settings in experiment.tasks]),
        units=units,
        signals=Signals(signals.losses, signals.norms, np.zeros(people.sizes.shape)),
        accuracies=fleet.evaluate(models, "validation").accuracy,
    )
    plan = allocator.plan(state)
    if isinstance(plan, Probabilities):
        probability, processors, marginal = plan.probability, plan.processors, plan.marginal
    else:
        assert isinstance(plan, Fixed)
        probability, marginal = np.zeros(people.sizes.shape), None
        probability[plan.client, plan.task] = 1.0
        processors = np.where(people.available.any(1), 1, 0)
    # Both references spend the same budget, task costs included.
    plain = np.ones(people.sizes.shape)
    random = mixed(state, plain, 1.0, "independent")
    norms = np.nan_to_num(signals.norms) / state.learning_rates
    scores = people.shares * norms / np.maximum(people.capacity, 1)[:, None]
    best = mixed(state, scores, 0.0, "independent").probability
    steps = variance(people, norms, probability if marginal is None else marginal, processors)
    mixing = allocator.options.mixing if isinstance(allocator, VarianceReduced) else 0.0
    return Explanation(
        method=options(experiment.method)["name"],
        tasks=[task.name for task in setting.tasks],
        population=people,
        scores=allocator.score(state, state.signals) if isinstance(allocator, VarianceReduced) else None,
        probability=probability,
        processors=processors,
        random=random.probability,
        variance=steps if is_unbiased(experiment.method) else np.full(len(steps), np.inf),
        random_variance=variance(people, norms, random.probability, people.processors),
        least_variance=variance(people, norms, best, people.processors),
        ceiling=1 - mixing * (1 - float((random.probability @ units).max(initial=0.0))),
        units=units,
    )


def is_unbiased(method: Method) -> bool:
    """Whether the expected step of a method, with its options, is that of full participation."""
    claim = method.unbiased_when
    return claim is not None and all(getattr(method, key) == value for key, value in claim.items())


def variance(people: Population, norms: Floats, probability: Floats, processors: Ints) -> Floats:
    """[P1] Eq. 12 for each task: sum_i d^2 / B ||G||^2 (1 / p - 1)."""
    weight = (people.shares * norms) ** 2 / np.maximum(processors, 1)[:, None]
    with np.errstate(divide="ignore"):
        spread = np.where(weight > 0, 1 / probability - 1, 0.0)
    return (weight * np.maximum(spread, 0.0)).sum(0)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
