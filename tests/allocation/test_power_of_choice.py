"""Power-of-choice: who is a candidate, and who of them trains."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np

from conftest import experiment_of, round_state
from fedmux.allocation import Signals
from fedmux.allocation.power_of_choice import PowerOfChoiceAllocator
from fedmux.population import Population
from fedmux.training.running import run

SIZES = np.array([1, 2, 3, 4, 10])


def fleet(sizes: np.ndarray, tasks: int = 1) -> Population:
    shape = (len(sizes), tasks)
    return Population(np.ones(len(sizes), int), np.repeat(sizes[:, None], tasks, 1), np.ones(shape, bool))


def test_candidates_are_drawn_in_proportion_to_data_without_replacement():
    chance: Counter[frozenset[int]] = Counter()  # of each set of two, drawn one after the other
    for first, second in itertools.permutations(range(5), 2):
        share = SIZES / SIZES.sum()
        chance[frozenset((first, second))] += share[first] * share[second] / (1 - share[first])
    allocator, people, draws = PowerOfChoiceAllocator(2.0), fleet(SIZES), 4000
    found: Counter[frozenset[int]] = Counter()
    for seed in range(draws):
        asked = allocator.reporters(round_state(people, seed=seed, jobs=1))
        found[frozenset(np.flatnonzero(asked[:, 0]).tolist())] += 1
    assert set(found) <= set(chance)
    for pair, p in chance.items():
        assert abs(found[pair] / draws - p) < 4.5 * np.sqrt(p * (1 - p) / draws)


def test_the_candidates_with_the_largest_losses_train():
    people = fleet(np.full(20, 5))
    for seed in range(20):
        state = round_state(people, seed=seed, jobs=3)
        allocator = PowerOfChoiceAllocator(2.0)
        asked = np.flatnonzero(allocator.reporters(state)[:, 0])
        assert len(asked) == 6
        losses = state.signals.losses[asked, 0]
        best = asked[np.argsort(-losses)[:3]]
        assert sorted(allocator.plan(state).client) == sorted(best)


def test_every_task_has_candidates_of_its_own_and_a_client_does_no_more_than_it_can():
    people = fleet(np.full(12, 5), tasks=3)  # one processor each
    state = round_state(people, jobs=6)
    allocator = PowerOfChoiceAllocator(1.5)
    asked = allocator.reporters(state)
    assert asked.sum(0).tolist() == [3, 3, 3]
    assert not (asked == asked[:, :1]).all()
    plan = allocator.plan(state)
    assert len(np.unique(plan.client)) == len(plan.client)
    assert asked[plan.client, plan.task].all()


def test_a_candidate_that_does_not_answer_is_not_drawn():
    people = fleet(np.full(20, 5))
    state = round_state(people, jobs=3)
    allocator = PowerOfChoiceAllocator(2.0)
    silent = allocator.plan(state).client[0]
    asked = allocator.reporters(state)
    losses = np.where(asked, state.signals.losses, np.nan)
    losses[silent] = np.nan
    gone = people.eligible.copy()
    gone[silent] = False
    after = replace(state, population=replace(people, eligible=gone), signals=Signals(losses))
    drawn = allocator.plan(after).client
    assert len(drawn) == 3 and silent not in drawn and asked[drawn, 0].all()


def test_only_candidates_report(tmp_path):
    finished = run(experiment_of(method={"name": "power-of-choice", "candidates": 1.5}), tmp_path / "run")
    for entry in finished.metrics[1:]:
        assert all(task["reports"] == 5 for task in entry["tasks"].values())  # 1.5 x 6 jobs / 2 tasks
