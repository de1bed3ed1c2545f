"""The store of one vector a client: its sum stays what it should be while clients come, change and go."""

import numpy as np
import pytest
import torch

from conftest import population, round_state
from fedmux.aggregation import store
from fedmux.aggregation.aggregator import Workspace
from fedmux.aggregation.store import ClientStore
from fedmux.population import Population
from stepping import zero_models
from storing import SIZE, busy, go_on_alike, put, recomputed

PRECISION = [("float32", 2**-24), ("bfloat16", 2**-8)]  # largest relative rounding


def begun(people: Population, precision="float32", storage="memory", folder=None) -> ClientStore:
    kept = ClientStore(precision, storage)
    kept.workspace = Workspace(folder)
    kept.begin(round_state(people), zero_models(people.tasks, SIZE))
    return kept


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_the_running_sum_is_that_of_what_is_stored_after_many_rounds_of_change(precision, storage, tmp_path):
    kept = ClientStore(precision, storage)
    kept.workspace = Workspace(tmp_path / "scratch")
    people = busy(kept, 200)
    for task in range(2):
        wanted = recomputed(kept, people, task)
        assert np.linalg.norm(wanted) > 0.1
        error = np.linalg.norm(kept.mean(task).numpy() - wanted) / np.linalg.norm(wanted)
        assert error < 1e-6
        weights = np.random.default_rng(1).uniform(0, 1, people.clients)
        every = kept.get(task, np.arange(people.clients)).double().numpy()
        assert kept.weighted(task, weights).numpy() == pytest.approx(weights @ every, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_memory_and_disk_hold_the_same(precision, tmp_path):
    stores = [ClientStore(precision, storage) for storage in ("memory", "disk")]
    stores[1].workspace = Workspace(tmp_path / "scratch")
    for kept in stores:
        people = busy(kept, 60)
    everybody = np.arange(people.clients)
    for task in range(2):
        assert torch.equal(*(kept.get(task, everybody) for kept in stores))
        assert torch.equal(*(kept.mean(task) for kept in stores))
        assert stores[0].bytes(task) == stores[1].bytes(task)
    assert {path.name for path in (tmp_path / "scratch").iterdir()} == {"store-0.bin", "store-1.bin"}


@pytest.mark.parametrize(("precision", "rounding"), PRECISION)
def test_what_was_put_comes_back_within_its_precision_and_nobody_else_is_touched(precision, rounding):
    people = population(10, 2)
    kept = begun(people, precision)
    values = np.random.default_rng(0).normal(0, 5, (3, SIZE))
    clients = np.flatnonzero(people.available[:, 1])[:3]
    put(kept, people, 1, clients, values)
    assert kept.get(1, clients[::-1]).numpy() == pytest.approx(values[::-1], rel=rounding)
    others = np.setdiff1d(np.arange(10), clients)
    assert not kept.get(1, others).any() and not kept.get(0, np.arange(10)).any()
    put(kept, people, 1, clients[1:2], values[:1])  # replaces
    assert kept.get(1, clients[:2]).numpy() == pytest.approx(values[[0, 0]], rel=rounding)


def test_only_clients_seen_take_room_and_room_doubles():
    people = Population(np.ones(100, int), np.full((100, 1), 3), np.ones((100, 1), bool))
    for precision, width in (("float32", 4), ("bfloat16", 2)):
        kept = begun(people, precision)
        assert kept.bytes(0) == 8 * SIZE and kept.rows[0].numel() == 0  # the sum alone
        room = []
        for number in range(40):
            put(kept, people, 0, np.array([number]), np.full((1, SIZE), number + 1.0))
            assert kept.bytes(0) == (number + 1) * SIZE * width + 8 * SIZE
            room.append(len(kept.rows[0]))
        put(kept, people, 0, np.array([7]), np.full((1, SIZE), 8.0))  # seen before
        assert kept.bytes(0) == 40 * SIZE * width + 8 * SIZE
        assert sorted(set(room)) == [8, 16, 32, 64]
        assert kept.get(0, np.arange(41))[:, 0].tolist() == [*range(1, 41), 0]


def test_a_client_that_leaves_counts_no_more_and_again_when_it_returns():
    everybody = Population(np.ones(3, int), np.array([[10], [20], [70]]), np.ones((3, 1), bool))
    gone = Population(everybody.capacity, everybody.sizes, np.array([[True], [False], [True]]))
    kept = begun(everybody)
    put(kept, everybody, 0, np.array([0, 1]), np.array([[1.0] * SIZE, [5.0] * SIZE]))
    models = zero_models(1, SIZE)
    for number, (people, wanted) in enumerate([(everybody, 1.1), (gone, 10 / 80), (everybody, 1.1)]):
        kept.begin(round_state(people, round=number), models)
        assert kept.mean(0).numpy() == pytest.approx(wanted)
    assert kept.get(0, np.array([1]))[0, 0] == 5


def test_a_refresh_removes_drift_and_changes_nothing_else(monkeypatch):
    monkeypatch.setattr(store, "REFRESH", 10)
    refreshed, plain = ClientStore("float32", "memory"), ClientStore("float32", "memory")
    people = busy(refreshed, 35)
    monkeypatch.setattr(store, "REFRESH", 10**6)
    busy(plain, 35)
    for task in range(2):
        assert refreshed.sums[task].numpy() == pytest.approx(plain.sums[task].numpy(), rel=1e-9)
        wanted = recomputed(refreshed, people, task)
        refreshed.sums[task] += 1.0  # drift, as if by rounding
        assert np.abs(refreshed.mean(task).numpy() - wanted).max() > 1e-3
    monkeypatch.setattr(store, "REFRESH", 10)
    for number, drifted in ((38, True), (39, False)):
        refreshed.begin(round_state(people, round=number), zero_models(2, SIZE))
        for task in range(2):
            wanted = recomputed(refreshed, people, task)
            assert (np.abs(refreshed.mean(task).numpy() - wanted).max() > 1e-3) == drifted


def test_an_enormous_vector_leaves_nothing_behind_in_the_sum_once_it_is_replaced():
    people = population(6, 1)
    kept, everybody = begun(people), np.flatnonzero(population(6, 1).available[:, 0])
    values = np.random.default_rng(0).normal(0, 1, (len(everybody), SIZE))
    put(kept, people, 0, everybody, values)
    put(kept, people, 0, everybody[:1], np.full((1, SIZE), 1e25))
    kept.begin(round_state(people, round=1), zero_models(1, SIZE))
    put(kept, people, 0, everybody[:1], values[:1])
    kept.begin(round_state(people, round=2), zero_models(1, SIZE))
    assert kept.mean(0).numpy() == pytest.approx(recomputed(kept, people, 0), rel=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_a_restored_store_goes_on_like_the_one_it_was_taken_from(precision, storage, tmp_path):
    kept, copy = (ClientStore(precision, storage) for _ in range(2))
    kept.workspace, copy.workspace = Workspace(tmp_path / "a"), Workspace(tmp_path / "b")
    assert kept.state()["row"].shape == (0, 0)
    go_on_alike(kept, copy)


def test_restoring_nothing_is_a_fresh_store():
    fresh = ClientStore("float32", "memory")
    fresh.restore({})
    people = population(4, 2)
    fresh.begin(round_state(people), zero_models(2, SIZE))
    assert not fresh.mean(0).any() and not fresh.weighted(0, np.ones(4)).any()


@pytest.mark.cuda
def test_rows_go_to_the_host_when_the_device_is_full_and_come_back_when_it_is_not(monkeypatch):
    people = population(12, 1, 0)
    kept, models = ClientStore("float32", "memory"), zero_models(1, SIZE)
    kept.workspace = Workspace(device=torch.device("cuda", 0))
    found = []
    for free in (0, 2**30):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2**30))
        kept.begin(round_state(people), models)
        if free == 0:
            values = torch.arange(12.0 * SIZE, device="cuda").view(12, SIZE)
            kept.put(0, np.arange(12), values, people.sizes[:, 0], kept.get(0, np.arange(12)))
        found.append(kept.rows[0].device.type)
        assert torch.equal(kept.get(0, np.arange(12)), values)
    assert found == ["cpu", "cuda"]
