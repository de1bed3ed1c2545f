"""FairVR's probabilities: certified by duality, against a solver, and where a solver's digits run out."""

import warnings

import cvxpy
import numpy as np
import pytest

from fedmux.allocation import fair_probabilities, feasible_targets, optimal_probabilities

KINDS = ["plain", "few jobs", "saturated", "tight", "full", "rare task", "one processor each", "far apart"]


def instance(seed: int):
    """Scores, processors, targets and availability, of a kind that a solver may find hard."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    clients, tasks = int(rng.integers(2, 30)), int(rng.integers(1, 6))
    scores = 10 ** rng.uniform(-3 if kind == "far apart" else -1.5, 0, (clients, tasks))
    capacity = np.ones(clients, int) if kind == "one processor each" else rng.integers(1, 5, clients)
    available = rng.random((clients, tasks)) < rng.choice([0.4, 0.7, 1.0])
    if kind == "rare task":
        available[:, -1] = np.arange(clients) < 2
    available[:, 0] |= ~available.any(1)
    load = {"few jobs": 0.02, "saturated": 0.8, "tight": 0.99, "full": 1.0}.get(kind, rng.uniform(0.1, 0.7))
    weights = rng.dirichlet(np.full(tasks, rng.choice([0.7, 4.0])))
    targets = feasible_targets(weights, load * capacity.sum(), capacity, available)
    return scores, capacity, targets, available


def trained(scores, capacity, targets, available, p):
    """The part of an instance that has something to do, with scores scaled to 1."""
    tasks = np.flatnonzero(targets)
    rows = np.flatnonzero(available[:, tasks].any(1))
    scores = np.where(available, scores, 0.0)[np.ix_(rows, tasks)]
    return scores / scores.max(), capacity[rows], targets[tasks], p[np.ix_(rows, tasks)]


def value(u, b, p) -> float:
    return float(b @ np.divide(u**2, p, out=np.zeros(p.shape), where=u > 0).sum(1))


def prices(u, p):
    """lambda (S) and mu (N) that explain p: U^2 / p^2 = lambda_s + mu_i, mu_i = 0 unless the row is full."""
    client, task = np.nonzero(u)
    level = (u[client, task] / p[client, task]) ** 2
    full = p.sum(1) > 1 - 1e-9
    terms = np.zeros((len(level), u.shape[1] + len(u)))
    terms[np.arange(len(level)), task] = 1
    terms[np.arange(len(level)), u.shape[1] + client] = full[client]
    solution = np.linalg.lstsq(terms / level[:, None], np.ones(len(level)), rcond=1e-15)[0]
    price, mu = solution[: u.shape[1]], np.where(full, solution[u.shape[1] :], 0.0)
    # Where everybody is full only lambda + mu is given: shift until no mu is negative.
    label = np.arange(len(price))
    for row in u > 0:
        label[np.isin(label, label[row])] = label[row].min()
    for component in np.unique(label):
        members = (u[:, label == component] > 0).any(1)
        if full[members].all():
            shift = min(0.0, mu[members].min())
            price[label == component] += shift
            mu[members] -= shift
    return price, mu


def bound(u, b, m, price, mu) -> float:
    """What no feasible p can be below: weak duality, for any lambda and any mu >= 0 with lambda + mu >= 0."""
    mu = np.maximum(mu, 0.0)
    level = np.maximum(price + mu[:, None], 0.0)
    return float(b @ ((2 * u * np.sqrt(level)).sum(1) - mu) - price @ m)


@pytest.mark.parametrize("kind", KINDS)
def test_no_probabilities_have_a_lower_variance(kind):
    """200 instances in all; the dual bound makes each result its own proof of being optimal."""
    for seed in range(KINDS.index(kind), 200, len(KINDS)):
        scores, capacity, targets, available = instance(seed)
        p = fair_probabilities(scores, capacity, targets, available=available)
        assert not p[~available].any() and (p >= 0).all() and (p.sum(1) <= 1 + 1e-12).all()
        assert capacity @ p == pytest.approx(targets, rel=1e-6)
        u, b, m, q = trained(scores, capacity, targets, available, p)
        best = bound(u, b, m, *prices(u, q))
        assert value(u, b, q) == pytest.approx(best, rel=1e-8)
        assert (q[u > 0] > 0).all()


def solved(u, b, m, units=None):
    """The problem as it is stated, to an interior-point solver; x = p / sqrt(U) only chooses units."""
    client, task = np.nonzero(u)
    weight = u[client, task]
    rows, columns = (np.arange(n)[:, None] == index for n, index in zip(u.shape, (client, task)))
    x = cvxpy.Variable(len(client))
    p = cvxpy.multiply(np.sqrt(weight), x)
    cost = cvxpy.multiply(b[client] * weight**1.5, cvxpy.inv_pos(x))
    load = np.ones(len(client)) if units is None else units[task]
    served = [(rows * load) @ p <= 1, (columns * b[client]) @ p == m]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cost)), served)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped short of 1e-12
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return problem.value


@pytest.mark.parametrize("kind", KINDS)
def test_a_solver_does_no_better(kind):
    for seed in range(KINDS.index(kind), 64, len(KINDS)):
        scores, capacity, targets, available = instance(seed)
        p = fair_probabilities(scores, capacity, targets, available=available)
        u, b, m, q = trained(scores, capacity, targets, available, p)
        assert value(u, b, q) <= solved(u, b, m) * (1 + 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_solver_does_no_better_where_jobs_take_more_than_a_processor(kind):
    for seed in range(KINDS.index(kind), 40, len(KINDS)):
        scores, capacity, targets, available = instance(seed)
        units = 1 + np.random.default_rng(seed).exponential(1.0, len(targets))
        targets = feasible_targets(targets / targets.sum(), targets.sum(), capacity, available, units=units)
        p = fair_probabilities(scores, capacity, targets, units=units, available=available)
        assert (p @ units <= 1 + 1e-12).all() and not p[~available].any()
        assert capacity @ p == pytest.approx(targets, rel=1e-6)
        u, b, m, q = trained(scores, capacity, targets, available, p)
        assert (q[u > 0] > 0).all()
        assert value(u, b, q) <= solved(u, b, m, units[np.flatnonzero(targets)]) * (1 + 1e-5)
        ones = fair_probabilities(scores, capacity, targets, units=np.ones(len(units)), available=available)
        assert (ones == fair_probabilities(scores, capacity, targets, available=available)).all()


def test_the_instances_saturate_clients_and_reach_closed_sets():
    """The tests above would say little if nothing were tight."""
    rows, negative, loads = 0, 0, []
    for seed in range(200):
        scores, capacity, targets, available = instance(seed)
        p = fair_probabilities(scores, capacity, targets, available=available)
        u, b, m, q = trained(scores, capacity, targets, available, p)
        rows += int((q.sum(1) > 1 - 1e-9).sum())
        negative += bool((prices(u, q)[0] < 0).any())
        loads.append(m.sum() / b.sum())
    assert rows > 500 and negative > 10
    assert np.isclose(loads, 1).sum() > 15 and np.less(loads, 0.03).sum() > 15


def test_a_multiplier_may_be_negative():
    """The example of a task all of whose clients are saturated: lambda_0 = -89992."""
    scores, available = np.array([[1.0, 30.0], [0.0, 1.0]]), np.array([[True, True], [False, True]])
    p = fair_probabilities(scores, np.ones(2, int), np.array([0.9, 0.5]), available=available)
    assert p == pytest.approx(np.array([[0.9, 0.1], [0.0, 0.4]]))
    price, mu = prices(scores * available, p)
    assert price == pytest.approx([-89992.515, 6.25], rel=1e-6)
    assert mu == pytest.approx([89993.75, 0.0], rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_while_nobody_is_saturated_it_is_least_variance_with_rescaled_scores(seed):
    """m_s U / sum B U in place of U; at a few per cent of participation this is usually all there is."""
    rng = np.random.default_rng(seed)
    scores, capacity = rng.uniform(0.1, 1.0, (60, 4)), rng.integers(1, 5, 60)
    available = rng.random(scores.shape) < 0.8
    available[:, 0] |= ~available.any(1)
    targets = 0.05 * capacity.sum() * rng.dirichlet(np.full(4, 3.0))
    p = fair_probabilities(scores, capacity, targets, available=available)
    assert p.sum(1).max() < 1
    own = np.where(available, scores, 0.0)
    rescaled = targets * own / (capacity @ own)
    assert p == pytest.approx(rescaled, rel=1e-12)
    wanted = optimal_probabilities(rescaled, capacity, targets.sum(), available=available)
    assert p == pytest.approx(wanted, rel=1e-12)


def stress(seed: int, load: float):
    """Scores five orders apart, pairs missing, targets that may have to be lowered."""
    rng = np.random.default_rng([seed, round(100 * load)])
    clients, tasks = int(rng.integers(2, 60)), int(rng.integers(1, 7))
    scores, capacity = 10 ** rng.uniform(-5, 0, (clients, tasks)), rng.integers(1, 5, clients)
    available = rng.random(scores.shape) < rng.choice([0.3, 0.6, 1.0])
    available[:, 0] |= ~available.any(1)
    weights = rng.dirichlet(np.full(tasks, rng.choice([0.5, 3.0])))
    return scores, capacity, feasible_targets(weights, load * capacity.sum(), capacity, available), available


def assert_met(scores, capacity, targets, available):
    p = fair_probabilities(scores, capacity, targets, available=available)
    assert (p.sum(1) <= 1 + 1e-12).all()
    assert capacity @ p == pytest.approx(targets, rel=1e-7)


@pytest.mark.parametrize("load", [0.01, 0.1, 0.5, 0.9, 0.99, 1.0])
def test_targets_are_met_at_any_load_with_scores_five_orders_apart(load):
    for seed in range(50):
        assert_met(*stress(seed, load))


@pytest.mark.parametrize(("seed", "load"), [(893, 0.99), (86, 1.0), (234, 1.0), (878, 1.0), (2009, 1.0)])
def test_targets_are_met_where_nearly_everybody_is_saturated_and_prices_lose_their_digits(seed, load):
    scores, capacity, targets, available = stress(seed, load)
    assert_met(scores, capacity, targets, available)
    p = fair_probabilities(scores, capacity, targets, available=available)
    u, b, m, q = trained(scores, capacity, targets, available, p)
    assert value(u, b, q) <= solved(u, b, m) * (1 + 1e-5)


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1e9, 1e150])
def test_only_ratios_of_scores_matter(scale):
    scores, capacity, targets, available = instance(2)
    p = fair_probabilities(scores, capacity, targets, available=available)
    assert fair_probabilities(scale * scores, capacity, targets, available=available) == pytest.approx(
        p, abs=1e-9
    )


def test_clients_of_many_processors_are_as_many_clients_of_one():
    for seed in range(16):
        scores, capacity, targets, available = instance(seed)
        owner = np.repeat(np.arange(len(capacity)), capacity)
        p = fair_probabilities(scores, capacity, targets, available=available)
        split = fair_probabilities(
            scores[owner], np.ones(len(owner), int), targets, available=available[owner]
        )
        assert split == pytest.approx(p[owner], abs=1e-6)


@pytest.mark.parametrize(
    "targets",
    [
        [3.0, 3.1],  # 6 processors
        [0.5, 5.01],  # the second task has 5
        [1e-9, 5.9],
    ],
)
def test_targets_beyond_the_processors_are_refused(targets):
    available = np.array([[True, True], [False, True], [True, False]])
    with pytest.raises(ValueError, match=r"cannot be met.*feasible_targets"):
        fair_probabilities(np.ones((3, 2)), np.array([2, 3, 1]), np.array(targets), available=available)


def test_a_task_nobody_can_train_has_no_target_to_meet():
    available = np.array([[True, False], [True, False]])
    with pytest.raises(ValueError, match="task 1 has a target but no client"):
        fair_probabilities(np.ones((2, 2)), np.ones(2, int), np.array([0.5, 0.5]), available=available)
    with pytest.raises(ValueError, match="task 1 has a target but no client"):
        fair_probabilities(np.ones((1, 2)), np.zeros(1, int), np.array([0.0, 0.5]))
    p = fair_probabilities(np.ones((2, 2)), np.ones(2, int), np.array([0.5, 0.0]), available=available)
    assert p == pytest.approx(np.array([[0.25, 0], [0.25, 0]]))


def test_a_score_of_zero_is_refused_by_client_and_task_where_it_matters():
    scores = np.ones((4, 3))
    scores[2, 1] = 0.0
    capacity, targets = np.array([1, 0, 1, 1]), np.array([0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match="client 2 for task 1 must be above 0"):
        fair_probabilities(scores, capacity, targets)
    fair_probabilities(scores, capacity, np.array([0.5, 0.0, 0.5]))  # the task is left out
    fair_probabilities(scores, np.array([1, 1, 0, 1]), targets)  # the client takes no part
    fair_probabilities(scores, capacity, targets, available=scores > 0)


@pytest.mark.parametrize("targets", [[0.5], [0.5, np.nan], [0.5, -0.1], [0.5, np.inf]])
def test_targets_that_are_none_are_refused(targets):
    with pytest.raises(ValueError, match="targets must be"):
        fair_probabilities(np.ones((3, 2)), np.ones(3, int), np.array(targets))


def test_no_targets_mean_no_probability():
    assert not fair_probabilities(np.ones((3, 2)), np.ones(3, int), np.zeros(2)).any()
