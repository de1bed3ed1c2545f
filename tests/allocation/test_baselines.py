"""Random, sequential and full: the probabilities they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import population, round_state
from fedmux.allocation.contract import check_draw
from fedmux.allocation.full import FullAllocator
from fedmux.allocation.plan import Budget, Probabilities
from fedmux.allocation.random import RandomAllocator
from fedmux.allocation.sequential import SequentialAllocator

sizes = {"clients": st.integers(1, 30), "tasks": st.integers(1, 6), "seed": st.integers(0, 100)}


@given(**sizes, jobs=st.floats(0.1, 60))
def test_random_gives_every_processor_m_over_v_and_every_own_task_the_same(clients, tasks, seed, jobs):
    people = population(clients, tasks, seed)
    plan = RandomAllocator("processors").plan(round_state(people, jobs=jobs))
    total = people.total_processors
    own = people.available.sum(1, keepdims=True)
    wanted = np.where(people.available, min(jobs, total) / max(total, 1) / np.maximum(own, 1), 0)
    assert plan.probability == pytest.approx(wanted)


@given(**sizes)
def test_clients_are_counted_whole_and_work_once(clients, tasks, seed):
    people = population(clients, tasks, seed)
    state = round_state(people, seed=seed, jobs=4)
    assignment = RandomAllocator("clients").plan(state).draw(state.rng())
    assert len(assignment) == len(set(assignment.client)) == min(4, people.active_clients)
    assert (assignment.count == 1).all()


def test_a_rate_is_of_processors_or_of_clients_rounded_half_up():
    assert Budget(rate=0.1).of_processors(231) == pytest.approx(23.1)
    assert Budget(rate=0.1).of_clients(25) == 3
    assert Budget(rate=0.01).of_clients(25) == 1
    assert Budget(jobs=12).of_clients(5) == 5
    assert Budget(jobs=12).of_processors(5) == 5


def test_sequential_stays_with_a_task_for_its_block():
    people = population()
    tasks = []
    for number in range(12):
        plan = SequentialAllocator("clients", 2).plan(round_state(people, round=number))
        (task,) = np.flatnonzero(plan.probability.any(0))
        tasks.append(task)
    assert tasks == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
    even = SequentialAllocator("clients", None).plan(round_state(people, round=7))  # 20 rounds, 3 tasks
    assert np.flatnonzero(even.probability.any(0)).tolist() == [1]


def test_full_takes_every_available_pair_once():
    people = population()
    assignment = FullAllocator().plan(round_state(people)).draw(np.random.default_rng(0))
    drawn = np.zeros(people.available.shape, bool)
    drawn[assignment.client, assignment.task] = True
    assert (drawn == people.available).all() and len(assignment) == people.available.sum()


def test_draws_follow_the_probabilities_and_no_processor_gets_two_tasks():
    people = population(clients=6, tasks=3, seed=2)
    rng = np.random.default_rng(0)
    probability = np.where(people.available, rng.uniform(0, 1, (6, 3)), 0)
    probability /= np.maximum(probability.sum(1, keepdims=True), 1)  # some rows saturated, some not
    state, plan = round_state(people), Probabilities(probability, people.processors)
    count = np.zeros((6, 3))
    squares = np.zeros((6, 3))
    draws = 20_000
    for _ in range(draws):
        assignment = plan.draw(rng)
        check_draw(plan, assignment, state, "test")
        count[assignment.client, assignment.task] += assignment.count
        squares[assignment.client, assignment.task] += assignment.count**2
    mean = count / draws
    wanted = people.processors[:, None] * probability
    variance = wanted * (1 - probability)  # a binomial for each pair
    assert (np.abs(mean - wanted) < 4.5 * np.sqrt(variance / draws) + 1e-12).all()
    assert squares / draws - mean**2 == pytest.approx(variance, abs=0.06)
