"""Multi-UCB: the index, what it learns from, and that it explores."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import population, round_state
from fedmux.allocation import Fixed
from fedmux.allocation.lessons import Lessons
from fedmux.allocation.multi_ucb import MultiUcbAllocator
from fedmux.population import Population

PEOPLE = population(clients=9, tasks=3)


def learn(allocator: MultiUcbAllocator, plan: Fixed, loss: np.ndarray) -> None:
    """Those that train send their loss (from N x S)."""
    lessons = Lessons(plan.client, plan.task, losses=loss[plan.client, plan.task])
    allocator.learn(round_state(PEOPLE), lessons)


def test_the_index_is_what_the_history_gives():
    rng, discount, c = np.random.default_rng(3), 0.8, 0.7
    allocator = MultiUcbAllocator(discount, c, False)
    history: list[np.ndarray] = []
    for number in range(12):
        plan = allocator.plan(round_state(PEOPLE, round=number))
        loss = rng.uniform(0.1, 3, PEOPLE.sizes.shape)
        history.append(np.full(loss.shape, np.nan))
        history[-1][plan.client, plan.task] = loss[plan.client, plan.task]
        learn(allocator, plan, loss)
    ages = discount ** np.arange(len(history))[::-1]
    for client, task in zip(*np.nonzero(PEOPLE.available)):
        losses = np.array([past[client, task] for past in history])
        heard = ~np.isnan(losses)
        found = allocator.index(PEOPLE.shares)[client, task]
        if not heard.any():
            assert found == np.inf
            continue
        jobs, rounds = ages[heard].sum(), ages.sum()
        bonus = c * np.sqrt(2 * np.log(rounds) / jobs)
        mean = (ages * np.where(heard, losses, 0)).sum() / jobs
        assert found == pytest.approx(PEOPLE.shares[client, task] * (mean + bonus))


def test_every_pair_is_tried_before_one_is_tried_again():
    people = Population(np.ones(8, int), np.full((8, 2), 5), np.ones((8, 2), bool))
    allocator, tried = MultiUcbAllocator(0.9, 1.0, False), np.zeros((8, 2), int)
    for number in range(4):
        plan = allocator.plan(round_state(people, round=number))
        np.add.at(tried, (plan.client, plan.task), 1)
        learn(allocator, plan, np.ones((8, 2)))
    assert (tried == 1).all()


def test_a_job_that_does_not_come_back_is_not_given_out_again_and_again():
    people = Population(np.ones(8, int), np.full((8, 1), 5), np.ones((8, 1), bool))
    allocator, count = MultiUcbAllocator(0.9, 1.0, False), np.zeros(8)
    for number in range(40):
        plan = allocator.plan(round_state(people, round=number, jobs=2))
        count[plan.client] += 1
        back = plan.client >= 2  # the first two never return
        learn(allocator, Fixed(plan.client[back], plan.task[back]), np.ones((8, 1)))
    assert 0 < count[:2].max() < count[2:].min()


def test_large_losses_are_picked_more_often_and_small_ones_now_and_then():
    people = Population(np.ones(10, int), np.full((10, 1), 5), np.ones((10, 1), bool))
    loss = np.where(np.arange(10) < 3, 5.0, 0.5)[:, None]
    allocator, count = MultiUcbAllocator(0.9, 1.0, False), np.zeros(10)
    for number in range(120):
        plan = allocator.plan(round_state(people, round=number, jobs=3))
        count[plan.client] += 1
        learn(allocator, plan, loss)
    assert count[:3].min() > 1.5 * count[3:].max()
    assert count[3:].min() >= 5


def test_a_warm_start_trains_everybody_on_one_task_after_the_other():
    allocator = MultiUcbAllocator(0.9, 1.0, True)
    for number in range(3):
        plan = allocator.plan(round_state(PEOPLE, round=number))
        assert (plan.task == number).all()
        assert plan.client.tolist() == np.flatnonzero(PEOPLE.available[:, number]).tolist()
    assert len(allocator.plan(round_state(PEOPLE, round=3)).client) == 4


def test_what_is_known_of_a_task_is_forgotten_with_it():
    allocator = MultiUcbAllocator(0.9, 1.0, False)
    for number in range(6):
        plan = allocator.plan(round_state(PEOPLE, round=number))
        learn(allocator, plan, np.ones(PEOPLE.sizes.shape))
    before = allocator.index(PEOPLE.shares)
    allocator.forget(1)
    after = allocator.index(PEOPLE.shares)
    assert (after[:, 1] == np.inf).all() and (after[:, [0, 2]] == before[:, [0, 2]]).all()


def test_a_task_that_joins_late_gets_its_warm_start_then_and_nobody_waits_for_it():
    people = population(clients=8, tasks=2)
    without = replace(people, eligible=people.eligible & np.array([False, True]))
    allocator = MultiUcbAllocator(0.9, 1.0, warm_start=True)
    for number, there, warmed in ((0, without, 1), (1, without, None), (2, people, 0), (3, people, None)):
        plan = allocator.plan(round_state(there, round=number, jobs=2))
        if warmed is None:
            assert len(plan.client) == 2
        else:
            assert set(plan.task) == {warmed} and len(plan.client) == there.available[:, warmed].sum()
