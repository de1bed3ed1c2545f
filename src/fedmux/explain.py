"""Why a method picks the clients it does: scores, probabilities and variances in an experiment's first round.

Variances are those of the aggregated step divided by the learning rate, [P1] Eq. 12: for each task the sum
over clients of d^2 / B ||G / eta||^2 (1 / p - 1). They need every client's update: every client trains once.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedmux.aggregation import Aggregator
from fedmux.allocation import Fixed, Plan, Probabilities, RoundState, Signals
from fedmux.allocation.contract import planned
from fedmux.allocation.variance_reduced import mixed
from fedmux.experiment import Experiment
from fedmux.fleet.engine import Engine
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.methods import options
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints, Population
from fedmux.training.assembly import assemble
from fedmux.training.driver import view_of
from fedmux.training.setting import Setting
from fedmux.training.yardstick import Yardstick


@dataclass(frozen=True, eq=False)
class Explanation:
    method: str
    tasks: list[str]
    population: Population
    scores: Floats | None  # N x S: U, if the method uses scores
    probability: Floats  # N x S, of one processor
    processors: Ints  # N: how many times a client draws
    random: Floats  # N x S: Random's probabilities
    variance: Floats  # S: of this method; inf where it is not unbiased
    random_variance: Floats  # S
    least_variance: Floats  # S: at the probabilities that minimise its sum over tasks for the true norms
    ceiling: float  # the largest load a client can have; mixing in Random keeps it below 1
    units: Floats  # S: load of a job on a processor

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
    """Explain round 0 of an experiment; changes nothing."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _explain(experiment)
    finally:
        torch.set_num_threads(threads)


def _explain(experiment: Experiment) -> Explanation:
    method, _ = experiment.method.fitted(experiment.scales)
    (allocator, aggregator), setting = method.pair(), assemble(experiment)
    state = first_round(experiment, setting, aggregator)
    people, norms = state.population, state.signals.norms
    assert norms is not None and state.units is not None
    probability, processors, marginal = expected(planned(allocator, state), people)
    # Both references spend the same budget, task costs included.
    random = mixed(state, np.ones(people.sizes.shape), 1.0, "independent").probability
    norms = np.nan_to_num(norms) / state.learning_rates
    best = mixed(state, people.shares * norms / np.maximum(people.capacity, 1)[:, None], 0.0, "independent")
    steps = variance(people, norms, marginal, processors)
    return Explanation(
        method=options(experiment.method)["name"],
        tasks=[task.name for task in setting.tasks],
        population=people,
        scores=allocator.scores(state),
        probability=probability,
        processors=processors,
        random=random,
        variance=steps if experiment.method.unbiased else np.full(len(steps), np.inf),
        random_variance=variance(people, norms, random, people.processors),
        least_variance=variance(people, norms, best.probability, people.processors),
        ceiling=1 - allocator.mixing * (1 - float((random @ state.units).max(initial=0.0))),
        units=state.units,
    )


def first_round(experiment: Experiment, setting: Setting, aggregator: Aggregator) -> RoundState:
    """What the allocator sees in round 0, with every signal available."""
    people = setting.in_round(0)
    fleet = SimulatedFleet(setting.tasks, experiment.seed, Engine.asked_for(experiment.execution))
    models = [task.layout.read() for task in fleet.tasks]
    # In the first round nobody has sent anything: the norm is the residual, and every projection is 0.
    signals = fleet.signals(models, {"loss", "norm"}, 0, people.available, aggregator.stale)
    if signals.silent is not None:  # not drawn, as in a run
        people = replace(people, eligible=people.eligible & ~signals.silent)
    return replace(
        view_of(experiment, setting.tasks, people, experiment.population.budget, 0),
        signals=Signals(signals.losses, signals.norms, np.zeros(people.sizes.shape)),
        accuracies=_progress(fleet, models),
    )


def _progress(fleet: SimulatedFleet, models: list[Model]) -> Floats:
    """S: on the validation part, before any training."""
    yardstick = Yardstick(fleet)
    yardstick.lay(models, "validation")
    return yardstick.progress(fleet.evaluate(models, "validation").score, "validation")


def expected(plan: Plan, people: Population) -> tuple[Floats, Ints, Floats]:
    """A plan's probabilities (N x S), draws per client (N), and the divisors of the weights (N x S)."""
    if isinstance(plan, Probabilities):
        return plan.probability, plan.processors, plan.probability if plan.marginal is None else plan.marginal
    assert isinstance(plan, Fixed)
    probability = np.zeros(people.sizes.shape)
    probability[plan.client, plan.task] = 1.0
    return probability, np.where(people.available.any(1), 1, 0), probability


def variance(people: Population, norms: Floats, probability: Floats, processors: Ints) -> Floats:
    """[P1] Eq. 12 for each task: sum_i d^2 / B ||G||^2 (1 / p - 1)."""
    weight = (people.shares * norms) ** 2 / np.maximum(processors, 1)[:, None]
    with np.errstate(divide="ignore"):
        spread = np.where(weight > 0, 1 / probability - 1, 0.0)
    return (weight * np.maximum(spread, 0.0)).sum(0)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
