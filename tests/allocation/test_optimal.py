"""The closed form of the least-variance probabilities against a solver, its own conditions and the paper."""

import warnings

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmux.allocation import optimal, optimal_probabilities
from fedmux.allocation.random import uniform_choice


def instance(seed: int, kind: str = "plain"):
    """Scores, processors, jobs and availability, of a kind that a solver may find hard."""
    rng = np.random.default_rng(seed)
    clients, tasks = int(rng.integers(2, 12)), int(rng.integers(1, 5))
    spread = 10 ** rng.uniform(0, 4)
    scores = np.exp(rng.uniform(-np.log(spread), 0, (clients, tasks)))
    capacity = rng.integers(1, 5, clients)
    available = rng.random((clients, tasks)) < 0.8
    available[:, 0] |= ~available.any(1)
    share = rng.uniform(0.05, 0.9)
    if kind == "ties":
        scores = rng.choice([0.25, 1.0], (clients, 1)) * np.ones((1, tasks))
        available[:] = True
    elif kind == "zeros":
        scores[rng.random(scores.shape) < 0.4] = 0
        scores[0, available[0]] = 1.0
    elif kind == "dominating":
        scores[0] *= 1e3 / scores[0].max()
        scores[1:] /= scores[1:].max()
    elif kind == "nearly everybody":
        share = 1 - 10 ** rng.uniform(-3, -1)
    elif kind == "one processor each":
        capacity[:] = 1
    return scores, capacity, share * capacity.sum(), available


KINDS = ["plain", "ties", "zeros", "dominating", "nearly everybody", "one processor each"]


def objective(scores, capacity, probability, available) -> float:
    counts = available & (scores > 0)
    terms = np.divide(scores**2, probability, out=np.zeros(scores.shape), where=counts)
    return float(capacity @ terms.sum(1))


def solved(scores, capacity, jobs, available):
    """The problem as it is stated, to an interior-point solver: its objective and probabilities.

    Only the unit of each variable is chosen, x = p / sqrt(U), so that the solver can be asked for 1e-12.
    """
    top = scores.max()
    client, task = np.nonzero(available & (scores > 0))
    weight, rows = scores[client, task] / top, np.arange(len(scores))[:, None] == client
    x = cvxpy.Variable(len(client))
    p = cvxpy.multiply(np.sqrt(weight), x)
    cost = cvxpy.multiply(capacity[client] * weight**1.5, cvxpy.inv_pos(x))  # B U^2 / p
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cost)), [rows @ p <= 1, (capacity @ rows) @ p == jobs])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped short of 1e-12
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    probability = np.zeros(scores.shape)
    probability[client, task] = p.value
    return problem.value * top**2, probability


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_no_solver_finds_a_lower_variance(kind, seed):
    scores, capacity, jobs, available = instance(seed, kind)
    scored = available & (scores > 0)
    jobs = min(jobs, 0.999 * capacity[scored.any(1)].sum())  # what is left over has no optimum
    p = optimal_probabilities(scores, capacity, jobs, available=available)
    value, wanted = solved(scores, capacity, jobs, available)
    assert objective(scores, capacity, p, available) <= value * (1 + 1e-6)
    if scores[scored].max() < 100 * scores[scored].min():  # else the objective hardly feels the smallest
        assert p == pytest.approx(wanted, abs=1e-5)


def assert_kkt(scores, capacity, jobs, p):
    """U^2 / p^2 = lambda + mu_i with mu_i >= 0, and mu_i = 0 unless the row is full; sum B p = m."""
    mass, total = scores.sum(1), p.sum(1)
    assert total.max() <= 1 + 1e-10
    assert float(capacity @ total) == pytest.approx(jobs, rel=1e-10)
    full = total >= 1 - 1e-12
    assert p[full] == pytest.approx(scores[full] / mass[full, None], rel=1e-10, abs=0)
    level = np.divide(p[~full], scores[~full], out=np.zeros(p[~full].shape), where=scores[~full] > 0)
    c = level.max()  # 1 / sqrt(lambda), the same for every client that has room
    assert level[scores[~full] > 0] == pytest.approx(c, rel=1e-10)
    assert (c * mass[full] >= 1 - 1e-10).all()  # mu_i = M_i^2 - 1 / c^2 >= 0
    assert (c * mass[~full] <= 1 + 1e-10).all()


@pytest.mark.parametrize("seed", range(30))
def test_the_optimality_conditions_hold_over_24_orders_of_magnitude(seed):
    rng = np.random.default_rng(seed)
    scores = 10 ** rng.uniform(-12, 12, (int(rng.integers(3, 400)), int(rng.integers(1, 6))))
    scores[rng.random(scores.shape) < 0.1] = 0
    scores[:, 0] += 1e-12
    capacity = rng.integers(1, 6, len(scores))
    jobs = rng.uniform(0.01, 0.95) * capacity.sum()
    assert_kkt(scores, capacity, jobs, optimal_probabilities(scores, capacity, jobs))


def staircase(kind: float | str) -> np.ndarray:
    """Masses of 60 clients of which each pass saturates only the first few of those that are left."""
    if kind != "factorial":
        return float(kind) ** -np.arange(60.0)
    return np.cumprod([1.0, *(1 / np.maximum(1.1, 0.9 * (35.5 - np.arange(59))))])  # one client a pass


@pytest.mark.parametrize("kind", [2.6, 4, 8, "factorial"])
def test_scores_that_need_many_passes_are_finished_by_sorting(kind, monkeypatch):
    sorting = []
    inner = optimal._saturate_sorted

    def counted(mass, capacity, jobs):
        sorting.append(len(mass))
        return inner(mass, capacity, jobs)

    monkeypatch.setattr(optimal, "_saturate_sorted", counted)
    mass = np.random.default_rng(0).permutation(staircase(kind))
    scores, ones = mass[:, None] * np.array([[0.7, 0.3]]), np.ones(60, int)
    jobs = 35.5 if kind == "factorial" else 55.5
    p = optimal_probabilities(scores, ones, jobs)
    assert len(sorting) == 1 and 0 < sorting[0] < 60
    assert_kkt(scores, ones, jobs, p)
    assert p.sum(1) == pytest.approx(inner(mass, ones, jobs), rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_passes_and_sorting_agree(seed):
    rng = np.random.default_rng(seed)
    mass = 10 ** rng.uniform(-rng.choice([1, 12]), 0, int(rng.integers(1, 300)))
    capacity = rng.integers(1, 6, len(mass))
    jobs = rng.uniform(0, 1) * capacity.sum()
    both = (way(mass, capacity, jobs) for way in (optimal.saturate, optimal._saturate_sorted))
    assert next(both) == pytest.approx(next(both), rel=1e-12, abs=0)


tables = st.integers(0, 2**32 - 1).map(lambda seed: instance(seed, KINDS[seed % len(KINDS)]))


@settings(deadline=None)
@given(tables, st.floats(1e-9, 1e9))
def test_only_ratios_of_scores_matter(given_instance, factor):
    scores, capacity, jobs, available = given_instance
    p = optimal_probabilities(scores, capacity, jobs, available=available)
    scaled = optimal_probabilities(factor * scores, capacity, jobs, available=available)
    assert scaled == pytest.approx(p, rel=1e-9, abs=1e-15)


@settings(deadline=None)
@given(tables, st.integers(0, 1000))
def test_the_order_of_clients_and_tasks_does_not_matter(given_instance, seed):
    scores, capacity, jobs, available = given_instance
    rng = np.random.default_rng(seed)
    rows, columns = (rng.permutation(n) for n in scores.shape)
    p = optimal_probabilities(scores, capacity, jobs, available=available)
    moved = optimal_probabilities(
        scores[rows][:, columns], capacity[rows], jobs, available=available[rows][:, columns]
    )
    assert moved == pytest.approx(p[rows][:, columns], rel=1e-9, abs=1e-15)


@settings(deadline=None)
@given(tables, st.floats(1.0, 1e3), st.data())
def test_a_pair_that_matters_more_is_never_drawn_less(given_instance, factor, data):
    scores, capacity, jobs, available = given_instance
    pair = data.draw(st.sampled_from([*zip(*np.nonzero(available & (scores > 0)))]))
    raised = scores.copy()
    raised[pair] *= factor
    before = optimal_probabilities(scores, capacity, jobs, available=available)
    after = optimal_probabilities(raised, capacity, jobs, available=available)
    assert after[pair] >= before[pair] - 1e-12


@settings(deadline=None)
@given(tables, st.floats(0, 60))
def test_probabilities_rows_and_total_keep_their_bounds(given_instance, jobs):
    scores, capacity, _, available = given_instance
    p = optimal_probabilities(scores, capacity, jobs, available=available)
    assert ((p >= 0) & (p <= 1 + 1e-12)).all() and (p.sum(1) <= 1 + 1e-12).all()
    assert float(capacity @ p.sum(1)) == pytest.approx(min(jobs, capacity.sum()), rel=1e-12)
    assert not p[~available].any()


@settings(deadline=None)
@given(tables)
def test_a_floor_keeps_every_available_pair_possible(given_instance):
    scores, capacity, jobs, available = given_instance
    floor = 1e-3 * scores[available].mean()
    p = optimal_probabilities(scores, capacity, jobs, available=available, floor=floor)
    mass = np.where(available, scores + floor, 0).sum(1)
    least = floor * min(jobs / float(capacity @ mass), 1 / mass.max())  # the specification's bound
    assert (p[available] >= least * (1 - 1e-9)).all() and least > 0


random_clients = np.array([[True, True, True], [True, False, False], [False, True, True], [False] * 3])


@pytest.mark.parametrize("jobs", [0.5, 3.0, 6.0])
def test_without_any_score_the_probabilities_are_those_of_random(jobs):
    capacity = np.array([3, 1, 2, 4])  # the last one has no task, so V = 6
    p = optimal_probabilities(np.zeros((4, 3)), capacity, jobs, available=random_clients)
    assert p == pytest.approx(jobs / 6 * uniform_choice(random_clients))


@pytest.mark.parametrize("jobs", [7.0, 1e9, np.inf])
def test_more_jobs_than_processors_means_all_of_them(jobs):
    scores = np.array([[1.0, 3.0], [2.0, 2.0], [0.0, 5.0]])
    p = optimal_probabilities(scores, np.array([2, 1, 4]), jobs)
    assert p == pytest.approx(scores / scores.sum(1, keepdims=True))
    available = np.array([[True, True], [True, True], [False, False]])
    scores[1] = 0  # a client without a score has all it can do, one without a task is not counted
    p = optimal_probabilities(scores, np.array([2, 1, 4]), jobs, available=available)
    assert p == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5], [0, 0]]))


def test_no_jobs_means_no_probability():
    assert not optimal_probabilities(np.ones((3, 2)), np.ones(3, int), 0).any()
    assert optimal_probabilities(np.ones((0, 2)), np.ones(0, int), 3).shape == (0, 2)


@pytest.mark.parametrize("jobs", [-1, -1e-9, np.nan])
def test_a_negative_number_of_jobs_is_an_error(jobs):
    with pytest.raises(ValueError, match="jobs must be at least 0"):
        optimal_probabilities(np.ones((3, 2)), np.ones(3, int), jobs)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1e-300])
def test_a_score_that_is_no_score_is_refused_by_client_and_task(bad):
    scores = np.ones((4, 3))
    scores[2, 1] = bad
    with pytest.raises(ValueError, match="client 2 for task 1"):
        optimal_probabilities(scores, np.ones(4, int), 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 1e300])
def test_what_stands_at_an_unavailable_pair_is_ignored(bad):
    scores, available = np.ones((4, 3)), np.ones((4, 3), bool)
    available[2, 1] = False
    clean = optimal_probabilities(scores, np.ones(4, int), 2, available=available)
    scores[2, 1] = bad
    assert (optimal_probabilities(scores, np.ones(4, int), 2, available=available) == clean).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"capacity": np.ones(3, int)}, "capacity N"),
        ({"capacity": np.array([1, -2, 1, 1])}, "client 1 has -2"),
        ({"capacity": np.array([1.0, 1.0, 1.5, 1.0])}, "whole numbers"),
        ({"available": np.ones((4, 2), bool)}, "shape of scores"),
        ({"floor": -0.1}, "floor"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        optimal_probabilities(**{"scores": np.ones((4, 3)), "capacity": np.ones(4, int), "jobs": 2, **change})


def test_clients_without_a_score_get_only_what_the_others_leave():
    scores = np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
    capacity, available = (
        np.array([1, 2, 1, 2]),
        np.array([[True] * 2, [True] * 2, [False, True], [True] * 2]),
    )
    p = optimal_probabilities(scores, capacity, 3, available=available)  # the others have 3 processors
    assert not p[1:3].any() and p[[0, 3]].sum(1) == pytest.approx(1)
    p = optimal_probabilities(scores, capacity, 4.5, available=available)
    assert p == pytest.approx(np.array([[1 / 3, 2 / 3], [0.25, 0.25], [0, 0.5], [1, 0]]))


def printed(scores, jobs, *, one_task=False):
    """[P1p] Eq. 5 for B = 1: k unsaturated clients, the largest k with 0 < m - V + k <= sum_j M_j / M_k.

    `one_task` puts the denominator of [P1] Eq. 14 as it is printed, over one task only.
    """
    mass = scores.sum(1)
    order = np.argsort(mass, kind="stable")
    k = np.arange(1, len(mass) + 1)
    left = jobs - len(mass) + k
    fits = (left > 0) & (left <= np.cumsum(mass[order]) / mass[order])
    number = int(k[fits].max())
    p = scores / mass[:, None]
    unsaturated = order[:number]
    over = scores[unsaturated].sum(0) if one_task else mass[unsaturated].sum()
    p[unsaturated] = left[number - 1] * scores[unsaturated] / over
    return p, left[number - 1], number


def test_one_processor_each_gives_the_closed_form_of_the_poster():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        scores = rng.exponential(size=(int(rng.integers(2, 40)), int(rng.integers(1, 6)))) ** rng.choice(
            [1, 4]
        )
        jobs = int(rng.integers(1, len(scores)))
        p = optimal_probabilities(scores, np.ones(len(scores), int), jobs)
        assert p == pytest.approx(printed(scores, jobs)[0], abs=1e-12)


def test_the_printed_denominator_of_theorem_9_gives_every_task_the_whole_budget():
    scores = np.random.default_rng(0).uniform(0.5, 1.0, (12, 3))
    p, left, unsaturated = printed(scores, 4, one_task=True)
    assert (left, unsaturated) == (4, 12)  # nobody is saturated, so the total should be m = 4
    assert p.sum() == pytest.approx(12)
    assert printed(scores, 4)[0].sum() == pytest.approx(4)


@pytest.mark.parametrize("seed", range(20))
def test_clients_of_many_processors_are_as_many_clients_of_one(seed):
    scores, capacity, jobs, available = instance(seed)
    p = optimal_probabilities(scores, capacity, jobs, available=available)
    owner = np.repeat(np.arange(len(capacity)), capacity)
    split = optimal_probabilities(scores[owner], np.ones(len(owner), int), jobs, available=available[owner])
    assert split == pytest.approx(p[owner], rel=1e-12, abs=1e-15)
