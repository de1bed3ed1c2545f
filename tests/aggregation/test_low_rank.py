"""The low-rank store: exact where it can be, the best of its rank elsewhere, and always of one piece."""

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import population, round_state
from fedmux.aggregation import low_rank
from fedmux.aggregation.aggregator import Workspace
from fedmux.aggregation.low_rank import LowRankStore
from fedmux.aggregation.store import ClientStore
from fedmux.population import Population
from stepping import zero_models
from storing import SIZE, busy, go_on_alike, put, recomputed

CLIENTS = 20
EVERYBODY = Population(
    np.ones(CLIENTS, int),
    np.random.default_rng(0).integers(5, 100, (CLIENTS, 1)),
    np.ones((CLIENTS, 1), bool),
)


def sent(kept: LowRankStore | ClientStore, round: int, values: np.ndarray, people: Population = EVERYBODY):
    """A round in which clients whose row is not NaN send it."""
    kept.begin(round_state(people, round=round), zero_models(1, values.shape[1]))
    clients = np.flatnonzero(~np.isnan(values).any(1))
    put(kept, people, 0, clients, values[clients])
    kept.end()


def vectors(kept: LowRankStore | ClientStore, task: int = 0) -> Tensor:
    return kept.get(task, np.arange(len(kept.shares) if isinstance(kept, LowRankStore) else len(kept.row)))


@pytest.mark.parametrize("at_once", [128, 2])
@pytest.mark.parametrize(("rank", "size"), [(17, 40), (SIZE, SIZE)], ids=["clients", "parameters"])
def test_nothing_is_lost_where_the_rank_suffices(rank, size, at_once, monkeypatch):
    """Of as many clients, or parameters, over many rounds in which clients come and go."""
    monkeypatch.setattr(low_rank, "AT_ONCE", at_once)
    monkeypatch.setattr(low_rank, "COLUMNS", 11)
    kept, whole = LowRankStore(rank, "float32"), ClientStore("float32", "memory")
    for each in (kept, whole):
        people = busy(each, 60, size=size)
    weights = np.random.default_rng(1).uniform(0, 1, people.clients)
    everybody = np.arange(people.clients)
    for task in range(2):
        wanted = whole.get(task, everybody)
        assert wanted.norm() > 1
        torch.testing.assert_close(kept.get(task, everybody), wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(kept.mean(task), whole.mean(task), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            kept.weighted(task, weights), whole.weighted(task, weights), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("rank", [1, 5, 12])
def test_what_is_kept_is_the_best_of_its_rank_when_all_are_replaced(rank):
    rng = np.random.default_rng(rank)
    kept = LowRankStore(rank, "float32")
    sent(kept, 0, rng.normal(0, 3, (CLIENTS, 30)))
    values = rng.normal(0, 1, (CLIENTS, 30)) * rng.uniform(0.1, 10, (CLIENTS, 1))
    sent(kept, 1, values)
    root = np.sqrt(EVERYBODY.sizes / np.linalg.norm(values, axis=1, keepdims=True))
    left, size, right = np.linalg.svd(root * values, full_matrices=False)
    wanted = (left[:, :rank] * size[:rank]) @ right[:rank] / root
    assert vectors(kept).numpy() == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    assert np.linalg.norm(wanted - values) > 0.1 * np.linalg.norm(values)


def test_a_replaced_vector_is_near_and_others_stay_near_in_a_basis_that_moves():
    """Vectors of rank 3 and a little noise, replaced a few at a time, in another subspace half way."""
    rng = np.random.default_rng(0)
    kept, whole = LowRankStore(8, "float32"), ClientStore("float32", "memory")
    for number in range(40):
        if number % 20 == 0:
            directions = rng.normal(0, 1, (3, 200))
        values = rng.normal(0, 1, (CLIENTS, 3)) @ directions + rng.normal(0, 0.05, (CLIENTS, 200))
        values[rng.permutation(CLIENTS)[4:]] = np.nan
        for each in (kept, whole):
            sent(each, number, values)
        if number > 10:
            lost = (vectors(kept) - vectors(whole)).norm() / vectors(whole).norm()
            assert lost < 0.1
    identity = kept.bases[0] @ kept.bases[0].T
    torch.testing.assert_close(identity, torch.eye(8), rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_sums_are_those_of_what_is_kept(precision):
    kept = LowRankStore(3, precision)
    people = busy(kept, 60, size=40)
    weights = np.random.default_rng(1).uniform(0, 1, people.clients)
    for task in range(2):
        every = kept.get(task, np.arange(people.clients)).double().numpy()
        assert kept.mean(task).numpy() == pytest.approx(recomputed(kept, people, task), rel=1e-5, abs=1e-6)
        assert kept.weighted(task, weights).numpy() == pytest.approx(weights @ every, rel=1e-5, abs=1e-5)
        assert len(kept.bases[task]) == 3
        assert kept.bytes(task) == 3 * 40 * kept.dtype.itemsize + people.clients * 3 * 4


def test_what_is_kept_changes_between_rounds_only():
    people = population(10, 2)
    kept = LowRankStore(2, "float32")
    for number in range(2):
        kept.begin(round_state(people, round=number), zero_models(2, SIZE))
        before = [(vectors(kept, task), kept.mean(task)) for task in range(2)]
        for task in range(2):
            clients = np.flatnonzero(people.available[:, task])
            put(kept, people, task, clients, np.random.default_rng(number).normal(0, 1, (len(clients), SIZE)))
        for task in range(2):
            assert torch.equal(vectors(kept, task), before[task][0])
            assert torch.equal(kept.mean(task), before[task][1])
        kept.end()
        assert not torch.equal(vectors(kept, 0), before[0][0])


def test_who_is_away_or_has_not_come_yet_takes_no_part_in_the_mean():
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, (CLIENTS, 6))
    values[5:] = np.nan
    kept = LowRankStore(8, "float32")
    sent(kept, 0, values)
    away = Population(EVERYBODY.capacity, EVERYBODY.sizes, EVERYBODY.eligible.copy())
    away.eligible[1] = False
    parts = (EVERYBODY.capacity, EVERYBODY.sizes, EVERYBODY.eligible)
    more = Population(*(np.concatenate([part, part[:1]]) for part in parts))
    nobody = np.full((CLIENTS, 6), np.nan)
    for number, people in enumerate((away, more), 1):
        sent(kept, number, nobody, people)
        filled = np.zeros((people.clients, 6))
        filled[:5] = values[:5]
        assert kept.mean(0).numpy() == pytest.approx(people.shares[:, 0] @ filled, rel=1e-5, abs=1e-6)
        assert vectors(kept).numpy() == pytest.approx(filled, rel=1e-5, abs=1e-6)


def test_a_task_is_forgotten_and_starts_again():
    kept = LowRankStore(3, "float32")
    people = busy(kept, 10)
    other = vectors(kept, 1)
    put(kept, people, 0, np.array([0]), np.ones((1, SIZE)))
    kept.forget(0)
    kept.end()
    assert not kept.mean(0).any() and not vectors(kept, 0).any() and kept.bytes(0) == 0
    assert torch.equal(vectors(kept, 1), other)
    put(kept, people, 0, np.array([0]), np.ones((1, SIZE)))
    kept.end()
    assert kept.get(0, np.array([0])).numpy() == pytest.approx(1)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_restored_store_goes_on_like_the_one_it_was_taken_from(precision):
    kept, copy = (LowRankStore(3, precision) for _ in range(2))
    copy.restore({})
    go_on_alike(kept, copy)


def test_memory_that_runs_out_at_the_end_of_a_round_costs_nothing_but_time(monkeypatch):
    people, rng = population(10, 2), np.random.default_rng(0)
    kept, spared = LowRankStore(2, "float32"), LowRankStore(2, "float32")
    values = rng.normal(0, 1, (2, 3, 10, SIZE))
    combined, calls = low_rank._combined, []

    def scarce(*arguments):
        calls.append(1)
        if len(calls) % 2 == 0:
            raise torch.OutOfMemoryError("out of memory")
        return combined(*arguments)

    for number in range(3):
        for each in (kept, spared):
            each.begin(round_state(people, round=number), zero_models(2, SIZE))
            for task in range(2):
                clients = np.flatnonzero(people.available[:, task])
                put(each, people, task, clients, values[task, number, clients])
        spared.end()
        monkeypatch.setattr(low_rank, "_combined", scarce)
        with pytest.raises(torch.OutOfMemoryError):
            kept.end()
        monkeypatch.setattr(low_rank, "_combined", combined)
        kept.end()
    for task in range(2):
        assert torch.equal(vectors(kept, task), vectors(spared, task))


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30])
def test_extreme_updates_leave_finite_vectors(value):
    rng = np.random.default_rng(0)
    kept = LowRankStore(4, "float32")
    values = rng.normal(0, 1, (CLIENTS, 30))
    sent(kept, 0, values)
    extreme = np.full((CLIENTS, 30), np.nan)
    extreme[:2] = value
    sent(kept, 1, extreme)
    assert vectors(kept).isfinite().all() and kept.mean(0).isfinite().all()
    assert vectors(kept)[:2].numpy() == pytest.approx(value, rel=1e-3, abs=1e-5)
    sent(kept, 2, values)  # all are replaced: nothing of it is left
    fresh = LowRankStore(4, "float32")
    sent(fresh, 0, values)
    torch.testing.assert_close(vectors(kept), vectors(fresh), rtol=1e-3, atol=1e-3)


def test_a_first_round_of_zeros_keeps_nothing():
    kept = LowRankStore(4, "float32")
    sent(kept, 0, np.zeros((CLIENTS, 30)))
    assert not vectors(kept).any() and not kept.mean(0).any()
    values = np.random.default_rng(0).normal(0, 1, (CLIENTS, 30))
    values[4:] = np.nan
    sent(kept, 1, values)
    assert vectors(kept)[:4].numpy() == pytest.approx(values[:4], rel=1e-5, abs=1e-6)


@pytest.mark.cuda
def test_sums_are_those_of_what_is_kept_on_a_gpu_that_computes_in_tf32(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    kept = LowRankStore(3, "float32")
    kept.workspace = Workspace(device=torch.device("cuda", 0))
    people = busy(kept, 20, size=40)
    for task in range(2):
        every = kept.get(task, np.arange(people.clients)).double().cpu().numpy()
        mean = people.shares[:, task] @ every
        assert kept.mean(task).cpu().numpy() == pytest.approx(mean, rel=1e-5, abs=1e-6)
