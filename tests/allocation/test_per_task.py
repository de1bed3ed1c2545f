"""Optimal client sampling of several tasks: each by itself, with its own share of the budget."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from conftest import population, round_state
from fedmux.allocation import optimal_probabilities
from fedmux.allocation.per_task import ByTask, probabilities_by_task
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.population import Population


def fleet(clients: int, tasks: int, processors: int = 1) -> Population:
    shape = (clients, tasks)
    return Population(np.full(clients, processors), np.full(shape, 5), np.ones(shape, bool))


@given(seed=st.integers(0, 300), jobs=st.floats(0.5, 4.0))
def test_without_competition_each_task_is_sampled_as_if_it_were_alone(seed, jobs):
    people = fleet(12, 3, processors=3)
    scores = np.random.default_rng(seed).uniform(0.5, 1.5, (12, 3)) * [1.0, 1e3, 1e-6]
    found = probabilities_by_task(round_state(people, jobs=jobs), scores)
    for task in range(3):
        alone = optimal_probabilities(scores[:, [task]], people.capacity, jobs / 3)
        assert found[:, task] == pytest.approx(alone[:, 0], rel=1e-8)


@given(seed=st.integers(0, 200), jobs=st.floats(1.0, 9.0))
def test_no_processor_is_booked_twice_and_every_task_has_its_share(seed, jobs):
    rng = np.random.default_rng(seed)
    people = Population(
        rng.integers(1, 3, 9), rng.integers(1, 50, (9, 3)), np.ones((9, 3), bool)
    )  # at least nine processors
    scores = rng.lognormal(0, 2, (9, 3))
    found = probabilities_by_task(round_state(people, jobs=jobs), scores)
    assert (found > 0).all() and (found.sum(1) <= 1 + 1e-9).all()
    assert people.capacity @ found == pytest.approx(np.full(3, min(jobs, people.capacity.sum()) / 3))


def test_where_tasks_want_the_same_processor_the_sum_of_the_variances_is_least():
    people, rng = fleet(5, 2), np.random.default_rng(5)
    scores = rng.uniform(0.2, 1.0, (5, 2))
    scores[0] = 20.0  # both tasks want client 0 for sure
    scores /= scores.max(0)
    found = probabilities_by_task(round_state(people, jobs=3), scores)

    def cost(p: np.ndarray) -> float:
        return float((scores**2 / p.reshape(5, 2)).sum())

    rows = {"type": "ineq", "fun": lambda p: 1 - p.reshape(5, 2).sum(1)}
    columns = {"type": "eq", "fun": lambda p: p.reshape(5, 2).sum(0) - 1.5}
    best = minimize(cost, np.full(10, 0.3), bounds=[(1e-3, 1)] * 10, constraints=[rows, columns])
    assert best.success and found[0].sum() == pytest.approx(1)
    assert cost(found.ravel()) <= best.fun * (1 + 1e-6)


def test_one_task_is_what_it_always_was():
    people, options = population(clients=9, tasks=1), ScoreOptions()
    one, other = (kind("norm", options).plan(round_state(people)) for kind in (ByTask, VarianceReduced))
    assert (one.probability == other.probability).all()


def test_the_scale_of_a_tasks_scores_matters_to_no_task():
    people = population(clients=9, tasks=3)
    state = round_state(people)
    larger = replace(state, learning_rates=state.learning_rates / [1.0, 1e4, 1e-4])  # scores divide by them
    one, other = (ByTask("norm", ScoreOptions(floor=0.1)).plan(s).probability for s in (state, larger))
    assert other == pytest.approx(one, rel=1e-6)


def test_costs_are_shared_as_the_budget_is():
    people, costs = fleet(12, 2, processors=2), np.array([1.0, 4.0])
    plan = ByTask("norm", ScoreOptions(mixing=0.0)).plan(round_state(people, jobs=8.0, costs=costs))
    assert people.capacity @ plan.probability == pytest.approx(np.array([4.0, 1.0]))


def test_a_task_that_nobody_has_gets_nothing():
    people = fleet(6, 3)
    people.eligible[:, 1] = False
    found = probabilities_by_task(round_state(people, jobs=2), np.ones((6, 3)))
    assert found.sum(0) == pytest.approx(np.array([1.0, 0.0, 1.0]))
