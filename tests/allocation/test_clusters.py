"""Clustered sampling: Algorithm 1's clusters, one client from each, and what it gains."""

import numpy as np
import pytest

from conftest import round_state
from fedmux.allocation.by_data import ByData
from fedmux.allocation.clusters import _pieces, clustered
from fedmux.allocation.plan import Probabilities
from fedmux.population import Population
from stepping import SIGMAS


def by_units(sizes: np.ndarray, jobs: int) -> np.ndarray:
    """Algorithm 1 in whole numbers (m x n): client i has m n_i units, and clusters are M units each."""
    order = np.argsort(-sizes, kind="stable")
    units = np.repeat(order, jobs * sizes[order])
    chance = np.zeros((jobs, len(sizes)))
    np.add.at(chance, (np.arange(len(units)) // sizes.sum(), units), 1)
    return chance / sizes.sum()


@pytest.mark.parametrize("jobs", [1, 2, 3, 5])
def test_clusters_are_those_of_the_paper(jobs):
    sizes = np.array([7, 1, 12, 3, 3, 9, 5, 20, 4, 20, 6, 8, 10])  # m n_i / M is below 1
    owner = np.arange(len(sizes))
    row, cluster, part = _pieces(owner, jobs * sizes / sizes.sum(), np.ones_like(sizes))
    found = np.zeros((jobs, len(sizes)))
    np.add.at(found, (cluster, row), part)
    assert found == pytest.approx(by_units(sizes, jobs), abs=1e-9)


def plan_of(sizes: np.ndarray, jobs: float, processors: np.ndarray) -> Probabilities:
    people = Population(processors, sizes, sizes > 0)
    return ByData().plan(round_state(people, jobs=jobs))


def test_each_cluster_sends_one_client():
    sizes = np.full((6, 1), 5)
    plan = plan_of(sizes, 3, np.ones(6, int))
    rng, met = np.random.default_rng(0), set()
    for _ in range(100):
        drawn = plan.draw(rng).client
        assert (drawn // 2).tolist() == [0, 1, 2]  # clusters of two
        met.add(tuple(drawn % 2))
    assert len(met) == 8  # and they are drawn independently of each other


def test_expected_jobs_are_in_proportion_to_data_as_far_as_processors_go():
    sizes = np.array([[10], [20], [30], [40]])
    plan = plan_of(sizes, 2, np.ones(4, int))
    assert plan.probability[:, 0] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    full = plan_of(sizes, 3, np.ones(4, int))  # 1.2 of the last one would be wanted
    assert full.probability[:, 0] == pytest.approx([1 / 3, 2 / 3, 1, 1])
    two = plan_of(sizes, 3, np.full(4, 2))
    assert 2 * two.probability[:, 0] == pytest.approx([0.3, 0.6, 0.9, 1.2])


def test_no_processor_trains_twice_and_everybody_trains_as_often_as_expected():
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 60, (9, 3)) * (rng.random((9, 3)) < 0.8)
    processors, draws = rng.integers(1, 3, 9), 2000
    plan = plan_of(sizes, 7.5, processors)
    counts = np.zeros((draws, 9, 3))
    for number in range(draws):
        client, task = clustered(plan.probability, processors, rng)
        np.add.at(counts[number], (client, task), 1)
    assert (counts.sum(2) <= processors).all()
    assert set(counts.sum(1).ravel()) == {2.0, 3.0}  # 2.5 jobs of each task
    error = counts.std(0) / np.sqrt(draws)
    wanted = processors[:, None] * plan.probability
    assert (np.abs(counts.mean(0) - wanted) <= SIGMAS * error + 1e-9).all()


def test_weights_vary_less_than_if_clients_were_drawn_one_by_one():
    sizes = np.array([7, 1, 12, 3, 3, 9, 5, 20, 4, 20, 6, 8, 10])[:, None]
    plan = plan_of(sizes, 4, np.ones(13, int))
    rng, share = np.random.default_rng(4), sizes[:, 0] / sizes.sum()
    weights = np.zeros((3000, 13))
    for row in weights:
        drawn = plan.draw(rng)
        row[drawn.client] = drawn.count * share[drawn.client] / drawn.expected
    assert weights.sum(1) == pytest.approx(1)  # 1 / m for each of m
    multinomial = share * (1 - share) / 4
    assert (weights.var(0) < multinomial).all()
