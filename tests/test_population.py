"""Clients as arrays: who counts, how much, and how processors and tasks are dealt out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import population
from fedmux.population import BLOCK, Population, draw_availability, draw_capacity, row_counts, row_sums


@given(clients=st.integers(1, 40), tasks=st.integers(1, 5), seed=st.integers(0, 50))
def test_shares_add_up_to_one_over_those_that_have_the_task(clients, tasks, seed):
    people = population(clients, tasks, seed)
    total = people.shares.sum(0)
    assert total == pytest.approx(people.available.any(0).astype(float))
    assert not people.shares[~people.available].any()


@pytest.mark.parametrize("columns", [1, 2, 5, 7, 8, 30, 300])
def test_sums_along_rows_are_numpys_to_the_bit(columns):
    rng = np.random.default_rng(columns)
    for rows in (0, 1, 50) if columns > 8 else (0, 1, BLOCK, 2 * BLOCK + 5):
        values = rng.lognormal(0, 20, (rows, columns))
        for laid_out in (values, np.asfortranarray(values), values[::-1]):
            assert (row_sums(laid_out) == laid_out.sum(1)).all()
        some = values > 1
        assert (row_counts(some) == some.sum(1)).all()


def test_a_client_without_processor_data_or_will_takes_no_part():
    people = Population(
        np.array([1, 0, 2, 3]),
        np.array([[5, 0], [5, 5], [0, 0], [2, 2]]),
        np.array([[True, True], [True, True], [True, True], [False, True]]),
    )
    assert people.available.tolist() == [[True, False], [False, False], [False, False], [False, True]]
    assert people.processors.tolist() == [1, 0, 0, 3]
    assert (people.total_processors, people.active_clients) == (4, 2)


def test_the_papers_shares_are_exact():
    rng = np.random.default_rng(0)
    has = draw_availability({"all": 0.9, "all_but_one": 0.1}, 120, 3, rng)
    assert np.bincount(has.sum(1)).tolist() == [0, 0, 12, 108]
    capacity = draw_capacity({"all": 0.25, "half": 0.5, "one": 0.25}, np.ones((120, 5), bool), rng)
    assert np.bincount(capacity).tolist() == [0, 30, 0, 60, 0, 30]


def test_half_of_the_tasks_is_rounded_up_and_counts_the_clients_own():
    has = np.array([[True, True, True], [True, True, False], [True, False, False]])
    assert draw_capacity({"half": 1.0}, has, np.random.default_rng(0)).tolist() == [2, 1, 1]
    assert draw_capacity({"all": 1.0}, has, np.random.default_rng(0)).tolist() == [3, 2, 1]


def test_numbers_and_lists_of_processors_are_taken_as_they_are():
    has = np.ones((3, 2), bool)
    rng = np.random.default_rng(0)
    assert draw_capacity(2, has, rng).tolist() == [2, 2, 2]
    assert draw_capacity([0, 4, 1], has, rng).tolist() == [0, 4, 1]


def test_a_probability_of_availability_leaves_nobody_without_a_task():
    has = draw_availability(0.05, 5000, 4, np.random.default_rng(0))
    assert has.any(1).all()
    assert has.mean() == pytest.approx(0.05 + 0.95**4 / 4, abs=0.01)


def test_with_one_task_nobody_lacks_it():
    assert draw_availability({"all": 0.5, "all_but_one": 0.5}, 10, 1, np.random.default_rng(0)).all()
