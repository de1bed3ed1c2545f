"""Clustering, slots and rotation of MMFL-Group Sampling, and the allocator that keeps a cycle."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from conftest import population, round_state
from fedmux.allocation import groups as groups_module
from fedmux.allocation.contract import check_draw
from fedmux.allocation.group_allocator import GroupAllocator
from fedmux.allocation.groups import (
    cluster,
    fill_missing,
    nearest_group,
    number_by_smallest,
    rotation,
    slots,
)
from fedmux.allocation.plan import Budget, Signals
from fedmux.population import Population

small = st.integers(1, 9)


def planted(groups: int, members: int, columns: int, spread: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(groups), members)
    centres = rng.uniform(0.5, 4.0, (groups, columns)) + 3 * np.arange(groups)[:, None]
    return truth, centres[truth] + rng.normal(0, spread, (len(truth), columns))


@pytest.mark.parametrize("groups", [3, 4, 5, 6])
def test_well_separated_groups_are_found(groups):
    truth, losses = planted(groups, 8, 3, 0.05)
    found = cluster(losses, models=3, seed=1)
    assert adjusted_rand_score(truth, found.label) == 1.0
    assert found.silhouette > 0.8 and len(found.centroids) == groups
    for group in range(groups):
        assert found.centroids[group] == pytest.approx(losses[found.label == group].mean(0))


@pytest.mark.parametrize("groups", [3, 4, 6])
def test_groups_of_more_clients_than_are_compared_are_found_from_a_sample(groups, monkeypatch):
    compared = []
    original = groups_module._silhouette
    monkeypatch.setattr(
        groups_module,
        "_silhouette",
        lambda points, label: compared.append(len(label)) or original(points, label),
    )
    truth, losses = planted(groups, 20_000 // groups, 3, 0.3)
    losses[np.random.default_rng(1).random(losses.shape) < 0.001] = np.nan
    order = np.random.default_rng(2).permutation(len(truth))
    found = cluster(losses[order], models=3, seed=1)
    assert max(compared) == groups_module.MOST_COMPARED  # no pairs of all clients
    assert len(found.centroids) == groups and adjusted_rand_score(truth[order], found.label) > 0.99
    assert len(found.label) == len(losses) and found.label[0] == 0
    filled = fill_missing(losses[order])
    for group in range(groups):
        assert found.centroids[group] == pytest.approx(filled[found.label == group].mean(0))
    again = cluster(losses[order], models=3, seed=1)
    assert (again.label == found.label).all() and again.silhouette == found.silhouette


def test_a_sample_finds_nearly_the_silhouette_that_everybody_does(monkeypatch):
    _, losses = planted(5, 240, 3, 1.2)  # groups that overlap
    whole = cluster(losses, models=3, seed=1)
    monkeypatch.setattr(groups_module, "MOST_COMPARED", 600)
    part = cluster(losses, models=3, seed=1)
    assert adjusted_rand_score(whole.label, part.label) > 0.95
    assert part.silhouette == pytest.approx(whole.silhouette, abs=0.05)


def test_many_clients_that_are_all_alike_are_split_evenly(monkeypatch):
    monkeypatch.setattr(groups_module, "MOST_COMPARED", 50)
    for values in (np.ones((200, 3)), np.repeat([[1.0, 2, 3], [3, 2, 1]], 100, axis=0)):
        found = cluster(values, 3, 0)
        assert (np.bincount(found.label) >= 50).all() and len(found.centroids) == 3


def test_the_number_of_groups_stays_in_its_range():
    truth, losses = planted(9, 4, 2, 0.01)
    assert len(cluster(losses, models=2, seed=0).centroids) <= 4
    assert len(cluster(losses, models=2, seed=0, most=9).centroids) == 9
    assert len(np.unique(truth)) == 9


def test_standardising_lets_a_small_loss_count():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 20)
    losses = np.stack([0.01 * truth + rng.normal(0, 0.001, 40), rng.normal(0, 100, 40)], axis=1)
    plain, scaled = (cluster(losses, 1, seed=0, most=2, scale=scale).label for scale in (False, True))
    assert adjusted_rand_score(truth, scaled) > adjusted_rand_score(truth, plain)


def test_missing_losses_count_as_their_columns_mean():
    losses = np.array([[1.0, np.nan], [3.0, 4.0], [np.nan, 8.0]])
    assert fill_missing(losses).tolist() == [[1, 6], [3, 4], [2, 8]]
    assert (fill_missing(np.full((3, 2), np.nan)) == 0).all()


@given(clients=st.integers(1, 12), models=st.integers(1, 6), seed=st.integers(0, 50))
def test_clients_that_are_all_alike_are_split_evenly(clients, models, seed):
    found = cluster(np.ones((clients, models)), models, seed)
    size = np.bincount(found.label)
    assert len(size) == min(models, clients) and len(found.centroids) == len(size)


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 1000))
def test_every_client_gets_a_group_and_no_group_is_empty(clients, models, seed):
    losses = np.random.default_rng(seed).random((clients, models)).round(1)
    found = cluster(losses, models, seed)
    assert (np.bincount(found.label) > 0).all() and len(found.label) == clients
    first = [int(np.flatnonzero(found.label == group)[0]) for group in range(len(found.centroids))]
    assert first == sorted(first)  # numbered by their smallest member


def test_groups_are_numbered_by_their_smallest_member():
    assert number_by_smallest(np.array([7, 2, 7, 5, 2])).tolist() == [0, 1, 0, 2, 1]


@given(groups=small, models=small)
def test_in_a_cycle_every_slot_meets_every_group_exactly_once(groups, models):
    count = max(groups, models)
    met = np.array([rotation(count, groups, step) for step in range(count)])  # steps x slots
    for slot in range(count):
        assert sorted(group for group in met[:, slot] if group >= 0) == list(range(groups))
    for row in met:
        busy = row[row >= 0]
        assert sorted(busy) == list(range(groups))  # each group works once in every step


@given(groups=small, models=small)
def test_idle_steps_are_spread_evenly_when_there_are_fewer_groups_than_models(groups, models):
    count = max(groups, models)
    idle = np.array([rotation(count, groups, step) < 0 for step in range(2 * count)])
    longest = -(-count // groups) - 1
    for slot in range(count):
        runs = "".join("x" if value else " " for value in idle[:, slot]).split()
        assert max(map(len, runs), default=0) <= longest


def test_group_zero_meets_the_paper_s_slots():
    # g = (s + tau) mod R with s and tau from 1, as printed
    for step in range(5):
        assert rotation(5, 5, step).tolist() == [(s + step + 1) % 5 for s in range(1, 6)]


def test_extra_slots_go_to_the_models_with_the_largest_loss():
    loss = np.array([0.5, 2.0, 1.0])
    assert slots(loss, 3).tolist() == [0, 1, 2]
    assert slots(loss, 5).tolist() == [0, 1, 2, 1, 2]
    assert slots(loss, 8).tolist() == [0, 1, 2, 1, 2, 0, 1, 2]
    assert slots(np.array([1.0, 1.0]), 3).tolist() == [0, 1, 0]
    assert slots(loss, 2).tolist() == [0, 1, 2]


def test_a_newcomer_joins_the_group_it_resembles():
    centroids = np.array([[1.0, 0.1], [0.1, 1.0]])
    assert nearest_group(np.array([5.0, 1.0]), centroids) == 0
    assert nearest_group(np.array([0.2, 0.9]), centroids) == 1
    # one usable column, or a vector of zeros: the nearest centroid
    assert nearest_group(np.array([0.2, np.nan]), centroids) == 1
    assert nearest_group(np.array([0.0, 0.0]), np.array([[1.0, 1.0], [0.2, 0.1]])) == 1
    assert nearest_group(np.array([np.nan, np.nan]), centroids) is None
    assert nearest_group(np.array([0.9, 7.0]), np.array([[1.0, np.nan], [5.0, np.nan]])) == 0


def everyone(clients: int, tasks: int) -> Population:
    return Population(
        np.ones(clients, np.int64), np.full((clients, tasks), 10), np.ones((clients, tasks), bool)
    )


def state_of(people: Population, number: int, losses: np.ndarray, rate: float = 0.5):
    return replace(
        round_state(people, round=number, signals=Signals(losses=losses)), budget=Budget(rate=rate)
    )


def test_a_cycle_trains_every_model_on_every_group():
    truth, losses = planted(4, 6, 3, 0.01)
    people = everyone(24, 3)
    allocator = GroupAllocator("consistent", None, False)
    met = np.zeros((3, 4), int)
    for number in range(4):
        state = state_of(people, number, losses)
        assert allocator.reporters(state).any() == (number == 0)
        plan = allocator.plan(state)
        drawn = plan.draw(state.rng())
        check_draw(plan, drawn, state, "test")
        for task in range(3):
            for group in np.unique(truth[drawn.client[drawn.task == task]]):
                met[task, group] += 1
        assert len(drawn) == 4 * 3  # half of each group of six
    assert (met >= 1).all()
    assert allocator.reporters(state_of(people, 4, losses)).all()  # the next cycle begins


def test_the_one_column_c_step_moves_on_by_one_each_cycle():
    _, losses = planted(3, 6, 3, 0.01)
    people = everyone(18, 3)
    allocator = GroupAllocator("inconsistent", None, False)
    columns = []
    for number in range(30):
        allocator.plan(state_of(people, number, losses))
        if "groups" in allocator.notes():
            columns.append(allocator.column)
    assert columns[:5] == [0, 1, 2, 0, 1]
    assert np.isnan(allocator.centroids).sum(1).tolist() == [2] * len(allocator.centroids)


def test_newcomers_take_part_from_the_next_round_on_and_new_models_wait_for_the_next_cycle():
    truth, losses = planted(3, 6, 3, 0.01)
    whole = everyone(18, 3)
    there = np.ones((18, 3), bool)
    there[5] = False  # joins in the second round
    there[:, 2] = False  # starts in the second round
    early = Population(whole.capacity, whole.sizes, there)
    allocator = GroupAllocator("consistent", None, False)
    allocator.plan(state_of(early, 0, np.where(there, losses, np.nan), rate=1.0))
    length = len(allocator.models)
    assert allocator.label[5] == -1 and set(allocator.models) == {0, 1}
    later = state_of(whole, 1, losses, rate=1.0)
    assert np.flatnonzero(allocator.reporters(later).any(1)).tolist() == [5]
    drawn = allocator.plan(later)
    assert 5 not in drawn.client and 2 not in drawn.task
    alike = np.flatnonzero((truth == truth[5]) & (np.arange(18) != 5))
    assert allocator.label[5] in allocator.label[alike]
    seen = []
    for number in range(2, length + 1):
        drawn = allocator.plan(state_of(whole, number, losses, rate=1.0))
        seen.append(5 in drawn.client)
        assert (2 in drawn.task) == (number == length)
    assert any(seen)


def test_the_slots_of_a_model_that_leaves_pass_to_the_one_with_the_largest_loss():
    _, losses = planted(3, 6, 3, 0.01)
    losses[:, 1] += 10
    whole = everyone(18, 3)
    allocator = GroupAllocator("consistent", None, False)
    allocator.plan(state_of(whole, 0, losses, rate=1.0))
    left = Population(whole.capacity, whole.sizes, np.array([[True, True, False]] * 18))
    drawn = allocator.plan(state_of(left, 1, losses, rate=1.0))
    assert set(drawn.task) == {0, 1}
    assert (drawn.task == 1).sum() == 12  # its own group's six and those of the model that left


def test_a_group_that_empties_idles():
    truth, losses = planted(3, 4, 3, 0.01)
    whole = everyone(12, 3)
    allocator = GroupAllocator("consistent", None, False)
    allocator.plan(state_of(whole, 0, losses, rate=1.0))
    gone = Population(whole.capacity, whole.sizes, np.repeat(truth[:, None] != 1, 3, axis=1))
    drawn = allocator.plan(state_of(gone, 1, losses, rate=1.0))
    assert len(drawn.client) == 8 and not (truth[drawn.client] == 1).any()


def test_a_state_goes_there_and_back():
    people = population(clients=9)
    first = GroupAllocator("inconsistent", None, True)
    for number in range(5):
        first.plan(round_state(people, round=number))
    second = GroupAllocator("inconsistent", None, True)
    second.restore({key: value.copy() for key, value in first.state().items()})
    for number in range(5, 12):
        state = round_state(people, round=number)
        plans = [allocator.plan(state) for allocator in (first, second)]
        assert (plans[0].client == plans[1].client).all() and (plans[0].task == plans[1].task).all()
