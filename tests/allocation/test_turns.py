"""Tasks that pick clients in turns: who gets whom, and what becomes of the budget."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conftest import population, round_state
from fedmux.allocation.plan import Budget
from fedmux.allocation.turns import in_turns
from fedmux.population import Population


def pairs(plan) -> list[tuple[int, int]]:
    return list(zip(plan.client.tolist(), plan.task.tolist()))


def test_each_task_takes_its_best_client_that_has_a_processor_left():
    people = Population(np.array([2, 1, 1, 0]), np.full((4, 2), 5), np.ones((4, 2), bool))
    scores = np.array([[9.0, 8.0], [7.0, 9.0], [1.0, 2.0], [99.0, 99.0]])
    everybody = people.available
    assert pairs(in_turns(round_state(people), scores, everybody)) == [(0, 0), (1, 1), (2, 0), (0, 1)]
    later = in_turns(round_state(people, round=1, jobs=3), scores, everybody)
    assert pairs(later) == [(1, 1), (0, 0), (0, 1)]  # the second task begins


@given(seed=st.integers(0, 500), jobs=st.integers(1, 20), number=st.integers(0, 5))
def test_picking_in_turns_is_what_looking_through_all_pairs_gives(seed, jobs, number):
    rng = np.random.default_rng(seed)
    people = population(clients=9, tasks=3, seed=seed)
    scores = rng.integers(0, 4, people.sizes.shape).astype(float)  # with ties
    candidates = people.available & (rng.random(people.sizes.shape) < 0.7)
    plan = in_turns(round_state(people, round=number, jobs=jobs), scores, candidates)
    open_pairs, free = candidates.copy(), people.capacity.copy()
    order = np.roll(np.flatnonzero(candidates.any(0)), -(number % max(1, int(candidates.any(0).sum()))))
    wanted: list[tuple[int, int]] = []
    while (open_pairs & (free > 0)[:, None]).any() and len(wanted) < min(jobs, people.total_processors):
        for task in order.tolist():
            able = np.flatnonzero(open_pairs[:, task] & (free > 0))
            if len(able) and len(wanted) < jobs:
                client = int(able[np.argmax(scores[able, task])])
                open_pairs[client, task] = False
                free[client] -= 1
                wanted.append((client, task))
    assert pairs(plan) == wanted


def test_the_first_turn_moves_on_so_that_no_task_is_favoured():
    people = Population(np.full(9, 3), np.full((9, 3), 5), np.ones((9, 3), bool))
    counts = sum(
        np.bincount(
            in_turns(round_state(people, round=r, jobs=4), np.ones((9, 3)), people.available).task,
            minlength=3,
        )
        for r in range(6)
    )
    assert counts.tolist() == [8, 8, 8]


def test_over_selected_jobs_are_not_all_waited_for():
    people = Population(np.full(9, 3), np.full((9, 3), 5), np.ones((9, 3), bool))
    state = replace(round_state(people), budget=Budget(jobs=4).times(1.5))
    plan = in_turns(state, np.ones((9, 3)), people.available)
    assert len(plan.client) == 6 and plan.wanted == 4
