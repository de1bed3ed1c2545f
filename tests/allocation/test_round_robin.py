"""Round robin: frames, who is dealt when, and the chances that weights divide by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import population, round_state
from fedmux.allocation.round_robin import RoundRobinAllocator, next_own
from fedmux.population import Population
from fedmux.randomness import Stream, generator


def fleet(there: np.ndarray, tasks: int, running: list[int] | None = None) -> Population:
    """Clients (N) that are there, each with every task that is running."""
    clients = len(there)
    on = np.isin(np.arange(tasks), np.arange(tasks) if running is None else running)
    return Population(np.ones(clients, np.int64), np.full((clients, tasks), 5), there[:, None] & on)


def task_of(plan) -> np.ndarray:
    """N: the task of each client, -1 for those that sit out."""
    busy = plan.probability > 0
    assert (busy.sum(1) <= 1).all()
    return np.where(busy.any(1), busy.argmax(1), -1)


def test_the_next_own_task_is_found_in_cyclic_order():
    available = np.array(
        [[True, True, True], [False, True, False], [False, False, False], [True, False, True]]
    )
    assert next_own(available).tolist() == [[0, 1, 2], [1, 1, 1], [-1, -1, -1], [0, 2, 2]]


def test_round_robin_brings_every_client_to_every_task_in_a_frame():
    people = fleet(np.ones(7, bool), 3)
    for frame in range(3):
        seen = np.zeros((7, 3))
        for turn in range(3):
            plan = RoundRobinAllocator("clients").plan(round_state(people, round=3 * frame + turn))
            assert ((plan.probability > 0).sum(1) == 1).all()
            seen += plan.probability > 0
        assert (seen == 1).all()


@given(clients=st.integers(6, 30), tasks=st.integers(1, 6), seed=st.integers(0, 100))
def test_with_everybody_there_all_the_time_a_frame_is_one_permutation(clients, tasks, seed):
    people = fleet(np.ones(clients, bool), tasks)
    allocator = RoundRobinAllocator("clients")
    for number in range(2 * tasks + 1):
        subset = np.empty(clients, np.int64)
        order = generator(seed, Stream.DEAL, round=number // tasks).permutation(clients)
        subset[order] = np.arange(clients) % tasks
        plan = allocator.plan(round_state(people, round=number, seed=seed))
        assert (task_of(plan) == (subset + number) % tasks).all()
        again = RoundRobinAllocator("clients").plan(round_state(people, round=number, seed=seed))
        assert (plan.probability == again.probability).all() and (plan.marginal == again.marginal).all()


def test_only_clients_that_are_there_are_dealt():
    there = np.random.default_rng(0).random(100) < 0.24
    allocator = RoundRobinAllocator("clients")
    plan = allocator.plan(round_state(fleet(there, 5), jobs=99))
    count = np.bincount(task_of(plan)[there], minlength=5)
    assert count.max() - count.min() <= 1 and count.sum() == there.sum()
    assert (task_of(plan)[~there] == -1).all() and not plan.marginal[~there].any()


@given(
    tasks=st.integers(1, 6),
    seed=st.integers(0, 1000),
    share=st.floats(0.05, 0.95),
    clients=st.integers(1, 40),
)
def test_who_appears_later_is_dealt_too_and_nobody_moves_within_a_frame(tasks, seed, share, clients):
    rng = np.random.default_rng(seed)
    allocator = RoundRobinAllocator("clients")
    dealt, subset = np.zeros(clients, bool), np.zeros(clients, np.int64)
    for number in range(3 * tasks):
        there = rng.random(clients) < share
        if number == 0:
            there[rng.integers(clients)] = True
        plan = allocator.plan(round_state(fleet(there, tasks), round=number, seed=seed))
        if allocator.start == number and there.any():  # a frame starts with those who are there
            dealt[:] = False
        assert (allocator.subset[dealt] == subset[dealt]).all()
        new = there & ~dealt
        dealt, subset = dealt | there, allocator.subset.copy()
        assert ((subset >= 0) == dealt).all()
        count = np.bincount(subset[new], minlength=tasks)
        assert count.max() - count.min() <= 1  # those who appear together are spread evenly
        assert ((task_of(plan) >= 0) == there).all()
        assert (plan.marginal[there] > 0).all()  # or weights could not make up for the deal


def test_a_task_that_joins_waits_for_the_next_frame_and_does_not_restart_this_one():
    there = np.ones(12, bool)
    allocator = RoundRobinAllocator("clients")
    seen = []
    for number in range(6):
        running = [0, 1, 2] if number < 1 else [0, 1, 2, 3]
        seen.append(task_of(allocator.plan(round_state(fleet(there, 4, running), round=number))))
    assert (np.sort(seen[:3], axis=0) == np.arange(3)[:, None]).all()  # every client had each of the three
    assert set(seen[3]) == {0, 1, 2, 3} and (np.bincount(seen[3]) == 3).all()
    assert allocator.start == 3 and len(allocator.tasks) == 4


def test_a_client_that_has_the_new_task_only_takes_no_place_before_the_next_frame():
    eligible = np.ones((6, 3), bool)
    eligible[:, 2] = False
    people = [Population(np.ones(6, np.int64), np.full((6, 3), 5), eligible.copy())]
    eligible[5] = [False, False, True]
    people += [Population(np.ones(6, np.int64), np.full((6, 3), 5), eligible)] * 2
    allocator = RoundRobinAllocator("clients")
    seen = [task_of(allocator.plan(round_state(p, round=r))) for r, p in enumerate(people)]
    assert [row[5] for row in seen] == [seen[0][5], -1, 2]


def test_the_clients_of_a_task_that_leaves_take_their_next_one():
    there = np.ones(9, bool)
    allocator = RoundRobinAllocator("clients")
    first = task_of(allocator.plan(round_state(fleet(there, 3))))
    second = task_of(allocator.plan(round_state(fleet(there, 3, [0, 1]), round=1)))
    wanted = (first + 1) % 3
    assert (second == np.where(wanted == 2, 0, wanted)).all()
    third = task_of(allocator.plan(round_state(fleet(there, 3), round=2)))  # it comes back in the frame
    assert (third == (first + 2) % 3).all()


def test_a_frame_none_of_whose_tasks_is_left_ends_and_an_empty_fleet_ends_none():
    there = np.ones(8, bool)
    allocator = RoundRobinAllocator("clients")
    first = task_of(allocator.plan(round_state(fleet(there, 5, [0, 1, 2]))))
    empty = allocator.plan(round_state(fleet(~there, 5), round=1))
    assert not empty.probability.any() and len(empty.draw(np.random.default_rng(0))) == 0
    assert (
        task_of(allocator.plan(round_state(fleet(there, 5, [0, 1, 2]), round=2))) == (first + 2) % 3
    ).all()
    allocator.plan(round_state(fleet(there, 5, [0, 1, 2]), round=3))
    other = task_of(allocator.plan(round_state(fleet(there, 5, [3, 4]), round=4)))
    assert (allocator.frame, allocator.start) == (2, 4) and (np.bincount(other) == [0, 0, 0, 4, 4]).all()


@pytest.mark.parametrize("participation", ["clients", "processors"])
def test_the_marginal_is_the_mean_over_deals(participation):
    people = population(clients=7, tasks=3, seed=3)
    plans = [
        RoundRobinAllocator(participation).plan(round_state(people, round=4, seed=seed))
        for seed in range(6000)
    ]
    mean = np.mean([plan.probability for plan in plans], axis=0)
    assert np.abs(mean - plans[0].marginal).max() < 4 * np.sqrt(0.25 / 6000)


def test_the_marginal_is_the_mean_over_deals_also_of_those_who_are_dealt_on():
    """Four of eleven at first, five more in the second round, the rest in the third; pairs are missing."""
    whole = population(clients=12, tasks=3, seed=3)
    plans = []
    for seed in range(6000):
        allocator = RoundRobinAllocator("clients")
        for number, clients in enumerate((4, 9, 12)):
            there = whole.eligible & (np.arange(12) < clients)[:, None]
            people = Population(whole.capacity, whole.sizes, there)
            plan = allocator.plan(round_state(people, round=number, seed=seed))
        plans.append(plan)
    mean = np.mean([plan.probability for plan in plans], axis=0)
    assert all((plan.marginal == plans[0].marginal).all() for plan in plans[:50])
    assert np.abs(mean - plans[0].marginal).max() < 4 * np.sqrt(0.25 / 6000)


def comings_and_goings(number: int) -> Population:
    there = np.random.default_rng(number).random(20) < 0.6
    return fleet(there, 4, [[0, 1], [0, 1, 2], [1, 2, 3], [3, 0]][number // 3 % 4])


def test_a_frame_survives_a_restart_in_its_middle():
    for stop in range(1, 12):
        first = RoundRobinAllocator("processors")
        for number in range(stop):
            first.plan(round_state(comings_and_goings(number), round=number))
        second = RoundRobinAllocator("processors")
        second.restore({name: value.copy() for name, value in first.state().items()})
        for number in range(stop, 14):
            state = round_state(comings_and_goings(number), round=number)
            plans = first.plan(state), second.plan(state)
            assert (plans[0].probability == plans[1].probability).all()
            assert (plans[0].marginal == plans[1].marginal).all()


def test_planning_a_round_again_changes_nothing():
    allocator = RoundRobinAllocator("clients")
    for number in range(12):
        state = round_state(comings_and_goings(number), round=number)
        plans = [allocator.plan(state) for _ in range(3)]
        assert all((plan.probability == plans[0].probability).all() for plan in plans)
        assert all((plan.marginal == plans[0].marginal).all() for plan in plans)
