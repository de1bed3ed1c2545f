"""Forecasts of all pairs at once are what the equations say of each."""

import numpy as np
import pytest

from conftest import round_state
from fedmux.allocation.forecast import AGES, Forecaster
from fedmux.allocation.forecast_sampling import ForecastOptions, ForecastSampling
from fedmux.allocation.lessons import Lessons
from fedmux.allocation.plan import Signals
from fedmux.population import Population

CLIENTS, TASKS, ROUND = 30, 3, 25


def taught(allocator):
    """The state of a round, after rounds in which a few clients trained the first two tasks."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 90, (CLIENTS, TASKS))
    people = Population(rng.integers(0, 4, CLIENTS), sizes, rng.random(sizes.shape) < 0.8)
    for number in range(ROUND):
        client, task = rng.choice(CLIENTS // 2, 4, replace=False), rng.integers(0, 2, 4)
        losses, norms, cosines, after = rng.uniform(0.2, 2.0, (4, 4))
        before = allocator.forecaster.lengths[client, task] if number else np.zeros(4)
        state = round_state(people, round=number, signals=Signals())
        allocator.plan(state)
        allocator.learn(state, Lessons(client, task, losses, norms, cosines / 2, before, after))
    return round_state(people, round=ROUND, signals=Signals())


def by_pair(known: Forecaster, state, i: int, s: int) -> tuple[float, float, float]:
    """||G|| / eta, c and beta of one pair."""
    people, (a, b, e) = state.population, known.coefficients()[s]
    heard = [f for j, f in enumerate(known.losses[:, s]) if people.available[j, s] and not np.isnan(f)]
    usual = sum(heard) / len(heard) if heard else 1.0
    loss = usual if np.isnan(known.losses[i, s]) else known.losses[i, s]
    norm = np.exp(a) * loss**b * people.sizes[i, s] ** e
    if known.lengths[i, s] == 0:
        return norm, 0.0, 0.0
    age = sum(ROUND - known.trained[i, s] >= AGES)
    cosine = known.cosine[0, s, age] / known.cosine[1, s, age]
    return norm, cosine, min(cosine * norm * state.learning_rates[s] / known.lengths[i, s], 2.0)


@pytest.mark.parametrize("remembers", [True, False])
def test_every_pair_gets_the_score_and_the_beta_of_the_equations(remembers):
    allocator = ForecastSampling(ForecastOptions(floor=0, mixing=0, balance="scores", remembers=remembers))
    state = taught(allocator)
    plan, people, known = allocator.plan(state), state.population, allocator.forecaster
    scores, betas = np.zeros((2, CLIENTS, TASKS))
    for i, s in np.argwhere(people.available):
        norm, cosine, beta = by_pair(known, state, i, s)
        left = norm * np.sqrt(1 - cosine**2) if remembers else norm
        scores[i, s], betas[i, s] = people.shares[i, s] / people.capacity[i] * left, beta
    here = scores.any(1)
    rows = [values[here] / values[here].sum(1, keepdims=True) for values in (plan.probability, scores)]
    assert rows[0] == pytest.approx(rows[1], rel=1e-10)
    assert not plan.probability[~here].any()
    assert plan.betas is None if not remembers else plan.betas == pytest.approx(betas, rel=1e-10)
    assert ((betas > 0) & (betas < 2)).sum() > 5 and np.isnan(known.losses).sum() > CLIENTS
