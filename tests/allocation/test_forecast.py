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


def lived(slopes=(0.7, 0.4), level=-1.0, noise=0.0, rounds=60, kept=None, steady=False):
    """A forecaster after rounds in which norms followed losses and points in this way."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 400, (CLIENTS, 1))
    people = Population(np.ones(CLIENTS, int), sizes, np.ones((CLIENTS, 1), bool))
    known, usual = Forecaster(remembers=True), rng.uniform(0.05, 3.0, CLIENTS)
    for number in range(rounds):
        rates = np.array([0.5**number if number < 5 else 0.1])  # a schedule: norms are per learning rate
        state = round_state(people, round=number, signals=Signals(), learning_rates=rates)
        client, losses = rng.choice(CLIENTS, 8, replace=False), rng.uniform(0.05, 3.0, 8)
        losses = usual[client] if steady else losses
        norms = (
            np.exp(level + noise * rng.normal(size=8)) * losses ** slopes[0] * sizes[client, 0] ** slopes[1]
        )
        cosines = (
            np.full(8, 0.6)
            if kept is None
            else kept(number - known.trained[client, 0])
            if number
            else losses * 0
        )
        before = np.ones(8) if number else np.zeros(8)
        known.meet(state)
        seen = Lessons(client, np.zeros(8, int), losses, norms * rates[0], cosines, before, np.ones(8))
        known.learn(state, seen)
    return known, state


def test_the_slopes_are_found_from_the_jobs_alone_whatever_the_learning_rates():
    known, _ = lived(noise=0.1)
    assert known.coefficients()[0] == pytest.approx([-1.0, 0.7, 0.4], abs=0.15)


def test_the_error_is_that_of_what_was_forecast_before_the_round():
    known, _ = lived(steady=True)
    assert 0 < known.error["norm"][0] < 0.05 and known.error["cosine"][0] < 0.01  # norms follow, losses stay
    known, _ = lived(steady=True, noise=0.5)
    assert 0.2 < known.error["norm"][0] < 1.0


def test_before_any_job_norms_grow_as_the_roots_of_losses_and_points():
    known = Forecaster(remembers=True)
    people = Population(np.ones(3, int), np.array([[1], [16], [81]]), np.ones((3, 1), bool))
    state = round_state(people, signals=Signals(losses=np.array([[1.0], [4.0], [9.0]])))
    known.meet(state)
    assert known.norms(state)[:, 0] == pytest.approx([1.0, 2 * 2, 3 * 3])


def test_cosines_are_learned_by_age():
    known, _ = lived(kept=lambda age: np.where(age < 5, 0.9, 0.2))
    young, old = known.cosine[0, 0] / known.cosine[1, 0] @ np.eye(6)[:, [0, 2]]
    assert young > 0.85 and old < 0.25


def test_what_happened_long_ago_fades():
    early, _ = lived(level=3.0, rounds=60)
    _, state = lived(level=-1.0, rounds=60)
    early.lengths[:] = 1.0
    for number in range(200):
        client = np.arange(8)
        seen = Lessons(
            client, client * 0, np.ones(8), np.exp(np.full(8, -1.0)), np.zeros(8), np.ones(8), np.ones(8)
        )
        early.learn(round_state(state.population, round=60 + number, learning_rates=np.ones(1)), seen)
    found, wanted = early.norms(state)[:8, 0], np.exp(-1.0)
    assert found == pytest.approx(np.full(8, wanted), rel=0.1)


def test_the_forecast_beta_leaves_the_least_and_never_counts_an_update_more_than_twice():
    known, _ = lived()
    known.lengths[:, 0] = np.geomspace(5.0, 0.01, CLIENTS)
    norms, kept = np.full(CLIENTS, 2.0), np.arange(CLIENTS)
    cosines = np.linspace(0.0, 1.0, CLIENTS)
    betas, h = known.betas(norms, 0, kept, cosines), known.lengths[:, 0]

    def left(beta):
        return norms**2 - 2 * beta * cosines * norms * h + beta**2 * h**2

    for other in np.linspace(0.0, 2.0, 41):
        assert (left(betas) <= left(other) + 1e-12).all()
    assert betas.max() == 2.0 and betas.min() == 0.0


def test_a_task_that_diverged_starts_anew_and_an_empty_state_is_the_beginning():
    known, state = lived()
    fresh = Forecaster(remembers=True)
    fresh.meet(state)
    known.forget(0)
    for name, value in fresh.state().items():
        assert np.array_equal(value, known.state()[name], equal_nan=True), name
    other, _ = lived()
    other.restore({})
    assert other.state() == {}
