"""Probabilities under a weighted budget: against a solver, the plain problem and the closed form."""

import warnings

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmux.allocation import optimal_probabilities
from fedmux.allocation.costs import cost_probabilities, fill_rows


def instance(seed: int, load: float | None = None):
    """Scores within 1e3 of each other, costs within 100, some pairs missing; `load` of the largest spend."""
    rng = np.random.default_rng(seed)
    clients, tasks = int(rng.integers(2, 12)), int(rng.integers(1, 5))
    scores = 10 ** rng.uniform(-3, 0, (clients, tasks))
    capacity = rng.integers(1, 5, clients)
    costs = 10 ** rng.uniform(-1, 1, tasks)
    available = rng.random((clients, tasks)) < 0.8
    available[:, 0] |= ~available.any(1)
    scores[~available] = np.nan
    load = rng.uniform(0.02, 0.98) if load is None else load
    return scores, capacity, load * spend(alone(scores), capacity, costs), costs, available


def alone(scores):
    """U / M: what every client does when the budget does not bind."""
    known = np.nan_to_num(scores)
    return known / known.sum(1, keepdims=True)


def spend(p, capacity, costs) -> float:
    return float((capacity @ p) @ costs)


def objective(scores, capacity, p, available) -> float:
    return float(capacity @ np.divide(scores**2, p, out=np.zeros(p.shape), where=available).sum(1))


def solved(scores, capacity, budget, costs, available, units=None) -> float:
    """The problem as stated, in units x = p / sqrt(U) that suit the solver; its objective."""
    client, task = np.nonzero(available)
    weight, rows = scores[client, task], np.arange(len(scores))[:, None] == client
    x = cvxpy.Variable(len(client))
    p = cvxpy.multiply(np.sqrt(weight), x)
    cost = cvxpy.multiply(capacity[client] * weight**1.5, cvxpy.inv_pos(x))
    load = np.ones(len(client)) if units is None else units[task]
    limits = [(rows * load) @ p <= 1, (capacity[client] * costs[task] / budget) @ p <= 1]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cost)), limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped short of 1e-12
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return problem.value


@pytest.mark.parametrize("seed", range(40))
def test_no_solver_finds_a_lower_variance_for_the_same_budget(seed):
    scores, capacity, budget, costs, available = instance(seed)
    p = cost_probabilities(scores, capacity, budget, costs, available=available)
    assert (p >= 0).all() and not p[~available].any() and (p.sum(1) <= 1 + 1e-12).all()
    assert spend(p, capacity, costs) <= budget * (1 + 1e-12)
    best = solved(scores, capacity, budget, costs, available)
    assert objective(scores, capacity, p, available) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_no_solver_finds_a_lower_variance_where_jobs_take_more_than_a_processor(seed):
    scores, capacity, budget, costs, available = instance(seed)
    units = 1 + np.random.default_rng(seed).exponential(1.0, len(costs))
    p = cost_probabilities(scores, capacity, budget, costs, units=units, available=available)
    assert (p[available] > 0).all() and not p[~available].any() and (p @ units <= 1 + 1e-12).all()
    assert spend(p, capacity, costs) <= budget * (1 + 1e-12)
    best = solved(scores, capacity, budget, costs, available, units)
    assert objective(scores, capacity, p, available) == pytest.approx(best, rel=1e-6)
    level = np.divide(scores**2, p**2, out=np.zeros(p.shape), where=available)
    for row in np.flatnonzero(p @ units < 1 - 1e-6):  # without a full row nothing but the cost counts
        price = (level[row] / costs)[available[row]]
        assert price == pytest.approx(np.full(len(price), price[0]))


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 1.2))
def test_jobs_that_take_one_unit_are_the_plain_ones(seed, load):
    scores, capacity, budget, costs, available = instance(seed, load)
    plain = cost_probabilities(scores, capacity, budget, costs, available=available)
    one = cost_probabilities(scores, capacity, budget, costs, units=np.ones(len(costs)), available=available)
    assert one == pytest.approx(plain, rel=1e-12, abs=0)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-4, 0.9999), st.floats(0.01, 100.0))
def test_equal_costs_give_the_plain_problem(seed, load, cost):
    scores, capacity, _, costs, available = instance(seed)
    jobs = load * capacity.sum()
    p = cost_probabilities(scores, capacity, jobs * cost, np.full(len(costs), cost), available=available)
    plain = optimal_probabilities(scores, capacity, jobs, available=available)
    assert p[available] == pytest.approx(plain[available], rel=1e-9, abs=0)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(1.0, 1e6))
def test_a_budget_that_does_not_bind_is_not_spent(seed, plenty):
    scores, capacity, budget, costs, available = instance(seed, load=1.0)
    p = cost_probabilities(scores, capacity, budget * plenty * (1 + 1e-12), costs, available=available)
    assert p == pytest.approx(alone(scores), rel=1e-14)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.one_of(st.floats(1e-9, 1.5), st.floats(-16, -1).map(lambda e: 1 - 10**e)))
def test_the_budget_is_never_exceeded_and_otherwise_spent(seed, load):
    scores, capacity, budget, costs, available = instance(seed, load)
    p = cost_probabilities(scores, capacity, budget, costs, available=available)
    assert (p[available] > 0).all() and (p.sum(1) <= 1 + 1e-12).all()
    assert spend(p, capacity, costs) <= budget * (1 + 1e-12)
    if load < 1:
        assert spend(p, capacity, costs) == pytest.approx(budget, rel=1e-9)


def test_a_budget_one_rounding_below_what_everybody_spends_is_met():
    for seed in range(200):
        scores, capacity, budget, costs, available = instance(seed, load=1.0)
        p = cost_probabilities(scores, capacity, np.nextafter(budget, 0), costs, available=available)
        assert p == pytest.approx(alone(scores), rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_while_nobody_is_saturated_there_is_a_closed_form(seed):
    scores, capacity, budget, costs, available = instance(seed)
    known = np.nan_to_num(scores)
    shape = known / np.sqrt(costs)
    wanted = shape / (capacity @ known @ np.sqrt(costs))  # for a budget of 1
    budget = 0.999 / wanted.sum(1).max()
    p = cost_probabilities(scores, capacity, budget, costs, available=available)
    assert p == pytest.approx(budget * wanted, rel=1e-12)


def test_a_dear_task_is_trained_less_than_the_plain_problem_would():
    scores, ones = np.ones((6, 2)), np.ones(6, int)
    p = cost_probabilities(scores, ones, 3, np.array([1.0, 4.0]))
    assert p == pytest.approx(np.tile([3 / 18, 3 / 36], (6, 1)))  # proportional to 1 / sqrt(cost)


def test_nothing_to_spend_or_nobody_to_train_means_no_probability():
    ones = np.ones((3, 2))
    assert not cost_probabilities(ones, np.ones(3, int), 0, np.ones(2)).any()
    assert not cost_probabilities(ones * 0, np.ones(3, int), 2, np.ones(2)).any()
    assert not cost_probabilities(ones, np.zeros(3, int), 2, np.ones(2)).any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"costs": np.array([1.0, 0.0])}, "one positive number"),
        ({"costs": np.array([1.0, np.inf])}, "one positive number"),
        ({"costs": np.array([1.0, np.nan])}, "one positive number"),
        ({"costs": np.ones(3)}, "one positive number for each task"),
        ({"units": np.array([1.0, 0.9])}, "units must be one number of at least 1"),
        ({"units": np.ones(3)}, "units must be one number of at least 1 for each task"),
        ({"budget": -1.0}, "budget must be at least 0"),
        ({"budget": np.nan}, "budget must be at least 0"),
        ({"scores": np.array([[1.0, 1], [1, -1], [1, 1]])}, "client 1 for task 1"),
        ({"capacity": np.array([1, 1, -1])}, "client 2 has -1"),
    ],
)
def test_input_that_makes_no_sense_is_refused(change, says):
    arguments = {"scores": np.ones((3, 2)), "capacity": np.ones(3, int), "budget": 2.0, "costs": np.ones(2)}
    with pytest.raises(ValueError, match=says):
        cost_probabilities(**{**arguments, **change})


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(-8, 8), st.floats(0, 6), st.booleans())
def test_rows_are_filled_exactly_or_have_no_multiplier(seed, level, spread, negative):
    rng = np.random.default_rng(seed)
    scores = 10 ** rng.uniform(-spread, 0, (8, 4))
    scores[rng.random((8, 4)) < 0.2] = 0
    prices = 10 ** (level + rng.uniform(-1, 1, 4)) * (rng.choice([-1, 1], 4) if negative else 1)
    p, levels = fill_rows(scores, prices)
    used = scores > 0
    assert not p[~used].any() and (levels[used] > 0).all()
    assert p[used] == pytest.approx((scores / np.sqrt(levels))[used], rel=1e-12)
    assert (p.sum(1) <= 1 + 1e-15).all()
    multiplier = levels - prices  # mu_i: the same for a whole row, at least 0, and 0 unless the row is full
    for row in np.flatnonzero(used.any(1)):
        mu, scale = multiplier[row, used[row]], 1e-10 * (levels[row, used[row]].max() + np.abs(prices).max())
        assert mu == pytest.approx(np.full(len(mu), mu[0]), abs=scale) and mu.min() >= -scale
        assert p[row].sum() == pytest.approx(1, abs=1e-13) or mu.max() <= scale
