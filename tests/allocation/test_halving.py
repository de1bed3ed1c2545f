"""Dependent rounding in arrays: marginals, numbers and bounds, for more clients than go edge by edge."""

import numpy as np
import pytest
from test_draws import EXPECTED, PROBABILITY, PROCESSORS, SIGMAS, counts, within

from fedmux.allocation.draws import MANY, dependent_rounding
from fedmux.allocation.halving import halving


def plan(load: float, clients: int, tasks: int, seed: int = 0):
    """Probabilities that differ by orders of magnitude, and processors; at high loads many rows are full."""
    rng = np.random.default_rng(seed)
    p = rng.lognormal(0, 2, (clients, tasks)) * (rng.random((clients, tasks)) < 0.8)
    p *= load * clients / p.sum()
    return p / np.maximum(p.sum(1, keepdims=True), 1.0), rng.integers(0, 4, clients)


def test_copies_of_a_client_are_drawn_as_often_as_its_probabilities_say():
    copies, draws = 400, 25
    p, processors = np.tile(PROBABILITY, (copies, 1)), np.tile(PROCESSORS, copies)
    rng = np.random.default_rng(0)
    drawn = np.stack([counts(halving, p, processors, rng) for _ in range(draws)])
    mean = drawn.reshape(draws * copies, *PROBABILITY.shape).mean(0)
    independent = np.sqrt(EXPECTED * (1 - PROBABILITY) / (draws * copies))
    assert (np.abs(mean - EXPECTED) <= SIGMAS * independent).all()


@pytest.mark.parametrize("load", [0.2, 0.9])
def test_every_client_on_its_own_keeps_its_marginals(load):
    p, processors = plan(load, 30, 3)
    rng = np.random.default_rng(1)
    drawn = np.stack([counts(halving, p, processors, rng) for _ in range(300)])
    expected = processors[:, None] * p
    often = expected * len(drawn) > 10  # the error of what is hardly ever drawn cannot be told from the draws
    assert within(drawn, expected)[often].all() and often.sum() > 20
    rare = expected[~often].sum() * len(drawn)
    assert abs(drawn[:, ~often].sum() - rare) <= SIGMAS * np.sqrt(rare)


@pytest.mark.parametrize("load", [0.003, 0.1, 0.6, 0.97])
@pytest.mark.parametrize("tasks", [1, 2, 5, 9])
def test_every_tasks_number_is_its_expectation_rounded_and_no_processor_works_twice(load, tasks):
    p, processors = plan(load, 3000, tasks)
    expected = processors @ p
    for seed in range(3):
        drawn = counts(halving, p, processors, np.random.default_rng(seed))
        assert (np.abs(drawn.sum(0) - expected) < 1).all()
        assert (drawn.sum(1) <= processors).all() and not drawn[p == 0].any()
        full = p.sum(1) > 1 - 1e-13
        assert (drawn.sum(1) == processors)[full].all() and (full.any() or load < 0.6)


def test_whole_numbers_are_met_exactly():
    p, processors = np.full((4000, 2), 0.05), np.ones(4000, int)
    assert (counts(halving, p, processors, np.random.default_rng(0)).sum(0) == 200).all()
    p, processors = np.full((4000, 2), 0.5), np.full(4000, 3)
    drawn = counts(halving, p, processors, np.random.default_rng(0))
    assert (drawn.sum(0) == 6000).all() and (drawn.sum(1) == 3).all()


@pytest.mark.parametrize("load", [0.1, 0.9])
def test_sums_over_clients_vary_no_more_than_under_independent_draws(load):
    p, processors = plan(load, 300, 3)
    rng = np.random.default_rng(2)
    value = 1 + rng.random(p.shape)  # clients that largely agree
    sums = np.stack([(counts(halving, p, processors, rng) * value).sum(0) for _ in range(120)])
    assert within(sums, (processors[:, None] * p * value).sum(0)).all()
    independent = (processors[:, None] * p * (1 - p) * value**2).sum(0)
    assert (sums.var(0) < 0.5 * independent).all()


def test_neighbours_in_the_file_meet_as_often_as_others():
    p, processors = np.full((8, 1), 0.25), np.ones(8, int)
    rng = np.random.default_rng(3)
    drawn = np.stack([counts(halving, p, processors, rng)[:, 0] for _ in range(1000)]).astype(float)
    together = (drawn.T @ drawn / len(drawn))[~np.eye(8, dtype=bool)]
    pair = 1 / 28  # two of eight, all pairs alike
    assert (np.abs(together - pair) < SIGMAS * np.sqrt(pair / len(drawn))).all()


def test_only_plans_too_large_to_go_edge_by_edge_are_halved():
    for clients, halved in ((MANY // 8, False), (MANY, True)):
        p, processors = np.full((clients, 4), 0.001), np.ones(clients, int)
        drawn, alike = (
            counts(draw, p, processors, np.random.default_rng(5)) for draw in (dependent_rounding, halving)
        )
        assert (drawn == alike).all() == halved
