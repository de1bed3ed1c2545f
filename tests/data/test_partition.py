"""Partitions: what every kind promises, on random settings, and what is refused."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fedmux.data.partition import (
    Classes,
    Clusters,
    Dirichlet,
    Iid,
    LabelShare,
    Natural,
    Partition,
    Split,
    split,
)
from fedmux.data.sizes import TwoLevels
from fedmux.errors import FedmuxError

POINTS = 2000
CLIENTS = 24
LABELS = np.random.default_rng(0).permutation(np.arange(POINTS) % 10)
GROUPS = np.random.default_rng(1).integers(0, 60, POINTS)
READ = TypeAdapter(Partition)


def cut(partition: Any, **changes: Any) -> Split:
    given: dict[str, Any] = {
        "labels": LABELS,
        "groups": GROUPS,
        "holders": np.arange(CLIENTS),
        "points": POINTS,
        "clients": CLIENTS,
        "seed": 7,
        "task": 0,
    } | changes
    labels, groups, holders = given.pop("labels"), given.pop("groups"), given.pop("holders")
    return split(partition, labels, groups, holders, **given)


def parts(found: Split) -> list[np.ndarray]:
    return np.split(found.indices, found.offsets[1:-1])


def same(one: Split, other: Split) -> bool:
    return np.array_equal(one.indices, other.indices) and np.array_equal(one.offsets, other.offsets)


sizes = st.one_of(
    st.integers(1, 40),
    st.tuples(st.integers(1, 20), st.integers(20, 40)),
    st.builds(
        TwoLevels,
        low=st.tuples(st.integers(1, 5), st.integers(5, 9)),
        high=st.tuples(st.integers(20, 30), st.integers(30, 40)),
        high_share=st.floats(0, 1),
    ),
)
common = {"sizes": sizes, "disjoint": st.booleans()}
kinds = st.one_of(
    st.builds(Iid, sizes=st.one_of(st.just("equal"), sizes), disjoint=st.booleans()),
    st.builds(LabelShare, share=st.floats(0.01, 1), **common),
    st.builds(Classes, classes=st.integers(1, 10), **common),
    st.builds(Dirichlet, alpha=st.floats(1e-3, 1e3), **common),
    st.builds(Clusters, clusters=st.integers(1, 5), consistent=st.booleans(), **common),
    st.builds(Natural, cap=st.none() | st.integers(1, 50)),
)
holder_sets = st.lists(st.integers(0, CLIENTS - 1), unique=True).map(lambda ids: np.array(sorted(ids), int))


@settings(max_examples=150, deadline=None)
@given(kinds, holder_sets, st.integers(0, 2**32), st.integers(0, 5))
def test_every_kind_keeps_its_promises(
    partition: Partition, holders: np.ndarray, seed: int, task: int
) -> None:
    try:
        found = cut(partition, holders=holders, seed=seed, task=task)
    except FedmuxError as error:
        assert "but only" in str(error)  # labels run out where few labels serve disjoint clients
        return
    assert found.indices.dtype == found.offsets.dtype == np.int64
    assert found.offsets.shape == (CLIENTS + 1,) and found.offsets[0] == 0
    owned = np.diff(found.offsets)
    assert (owned >= 0).all() and found.offsets[-1] == len(found.indices)
    assert (owned[holders] > 0).all() and not np.delete(owned, holders).any()
    for points in parts(found):
        assert len(np.unique(points)) == len(points)
    used, times = np.unique(found.indices, return_counts=True)
    assert found.overlap == pytest.approx((times > 1).mean() if len(used) else 0.0)
    if isinstance(partition, Natural) or partition.disjoint:
        assert found.overlap == 0 and len(used) == len(found.indices)
    assert same(found, cut(partition, holders=holders, seed=seed, task=task))
    _check_sizes(partition, owned[holders], holders)
    _check_labels(partition, found, holders)


def _check_sizes(partition: Partition, owned: np.ndarray, holders: np.ndarray) -> None:
    if isinstance(partition, Natural) or not len(holders):
        return
    chosen = partition.sizes
    if chosen == "equal":
        assert owned.sum() == POINTS and np.ptp(owned) <= 1
    elif isinstance(chosen, int):
        assert (owned == chosen).all()
    elif isinstance(chosen, tuple):
        assert owned.min() >= chosen[0] and owned.max() <= chosen[1]
    else:
        high = (owned >= chosen.high[0]) & (owned <= chosen.high[1])
        low = (owned >= chosen.low[0]) & (owned <= chosen.low[1])
        assert (high | low).all() and high.sum() == round(chosen.high_share * len(holders))


def _check_labels(partition: Partition, found: Split, holders: np.ndarray) -> None:
    mine = {client: set(LABELS[parts(found)[client]].tolist()) for client in holders.tolist()}
    assert (found.cluster is None) == (not isinstance(partition, Clusters))
    if isinstance(partition, LabelShare):
        assert all(len(own) <= max(1, round(partition.share * 10)) for own in mine.values())
    if isinstance(partition, Classes):
        assert all(len(own) <= partition.classes for own in mine.values())
    if isinstance(partition, Clusters):
        assert found.cluster is not None
        assert (np.delete(found.cluster, holders) == -1).all() and (found.cluster[holders] >= 0).all()
        if not partition.consistent and len(holders):
            assert np.ptp(np.bincount(found.cluster[holders], minlength=partition.clusters)) <= 1
        for one in mine:
            for other in mine:
                if found.cluster[one] != found.cluster[other]:
                    assert not mine[one] & mine[other]
    if isinstance(partition, Natural):
        for client, points in enumerate(parts(found)):
            if client in mine:
                (group,) = np.unique(GROUPS[points])
                whole = int(np.count_nonzero(np.equal(GROUPS, group)))
                assert len(points) == min(whole, partition.cap or whole)


ONE_OF_EACH = [
    Iid(),
    Iid(sizes=(5, 20), disjoint=False),
    LabelShare(share=0.3, sizes=20),
    Classes(classes=5, sizes=20, disjoint=False),
    Dirichlet(alpha=0.5, sizes=20),
    Clusters(clusters=5, consistent=True, sizes=20),
    Natural(cap=20),
]


@pytest.mark.parametrize("partition", ONE_OF_EACH, ids=repr)
def test_another_seed_or_task_gives_another_split_and_other_tasks_change_nothing(
    partition: Partition,
) -> None:
    found = cut(partition, task=1)
    cut(Dirichlet(alpha=1, sizes=3), task=0, labels=LABELS[::-1])
    assert same(found, cut(partition, task=1))
    assert not same(found, cut(partition, task=0))
    assert not same(found, cut(partition, task=1, seed=8))


@pytest.mark.parametrize("partition", ONE_OF_EACH, ids=repr)
def test_no_holders_means_an_empty_split(partition: Partition) -> None:
    found = cut(partition, holders=np.array([], dtype=int))
    assert len(found.indices) == 0 and not found.offsets.any() and found.overlap == 0
    assert len(found.offsets) == CLIENTS + 1


def test_the_setting_of_p1_gives_a_tenth_of_the_clients_half_of_the_data() -> None:
    partition = READ.validate_python(
        {
            "kind": "label-share",
            "share": 0.3,
            "sizes": {"low": [9, 15], "high": [90, 150], "high_share": 0.1},
        }
    )
    many = np.arange(60000) % 10
    found = cut(partition, holders=np.arange(120), clients=120, labels=many, points=60000)
    owned = np.diff(found.offsets)
    assert (owned >= 90).sum() == 12
    assert owned[owned >= 90].sum() / owned.sum() == pytest.approx(0.526, abs=0.06)
    for points in parts(found):
        _, each = np.unique(many[points], return_counts=True)
        assert len(each) == 3 and np.ptp(each) <= 1  # evenly over its labels
    other = np.diff(
        cut(partition, holders=np.arange(120), clients=120, labels=many, points=60000, task=1).offsets
    )
    assert not np.array_equal(owned >= 90, other >= 90)


def test_a_client_has_exactly_its_number_of_classes_where_points_suffice() -> None:
    found = cut(Classes(classes=5, sizes=(50, 70), disjoint=False))
    assert all(len(np.unique(LABELS[points])) == 5 for points in parts(found))
    assert 0 < found.overlap < 1


def test_equal_iid_parts_use_every_point_once() -> None:
    assert np.array_equal(np.sort(cut(Iid()).indices), np.arange(POINTS))


def test_labels_need_not_be_numbered_from_zero() -> None:
    odd = LABELS * 3 + 5
    found = cut(Classes(classes=2, sizes=20), labels=odd)
    assert all(len(np.unique(odd[points])) == 2 for points in parts(found))


def test_a_small_alpha_gives_few_labels_and_a_large_one_all() -> None:
    def labels_held(alpha: float) -> float:
        found = cut(Dirichlet(alpha=alpha, sizes=60))
        return float(np.mean([len(np.unique(LABELS[points])) for points in parts(found)]))

    assert labels_held(0.05) < 4 < 9 < labels_held(1000)


def test_dirichlet_fills_from_any_label_and_can_use_the_whole_pool() -> None:
    found = cut(Dirichlet(alpha=0.01))
    assert np.array_equal(np.sort(found.indices), np.arange(POINTS))


def test_an_exhausted_label_is_filled_from_the_clients_other_labels() -> None:
    labels = np.array([0] * 2 + [1] * 50)
    found = cut(Classes(classes=2, sizes=20), labels=labels, holders=np.array([3]), points=52)
    assert np.bincount(labels[found.indices]).tolist() == [2, 18]


def test_consistent_clusters_are_the_same_in_all_tasks_and_balanced() -> None:
    partition = Clusters(clusters=5, consistent=True, sizes=20)
    first, second = cut(partition, task=0).cluster, cut(partition, task=3).cluster
    assert first is not None and second is not None
    assert np.array_equal(first, second)
    assert np.ptp(np.bincount(first)) <= 1
    fewer = cut(partition, holders=np.arange(0, CLIENTS, 2), task=1).cluster
    assert fewer is not None
    assert np.array_equal(fewer[::2], first[::2]) and (fewer[1::2] == -1).all()


def test_independent_clusters_differ_between_tasks() -> None:
    partition = Clusters(clusters=5, consistent=False, sizes=20)
    first, second = cut(partition, task=0).cluster, cut(partition, task=1).cluster
    assert first is not None and second is not None
    assert not np.array_equal(first, second)


def test_blocks_of_47_labels_over_5_clusters_have_9_or_10_labels() -> None:
    labels = np.arange(4700) % 47
    found = cut(Clusters(clusters=5, consistent=True, sizes=40), labels=labels, points=4700)
    held = [len(np.unique(labels[points])) for points in parts(found)]
    assert sorted(set(held)) == [9, 10]


def test_natural_takes_different_groups_for_different_clients() -> None:
    found = cut(Natural())
    assert len({int(GROUPS[points[0]]) for points in parts(found)}) == CLIENTS


def test_a_hundred_thousand_clients_are_split_fast() -> None:
    clients = 100_000
    found = cut(
        Iid(sizes=(1, 9)), labels=None, holders=np.arange(clients), clients=clients, points=10 * clients
    )
    assert len(np.unique(found.indices)) == len(found.indices)


@pytest.mark.parametrize(
    "partition", [kind for kind in ONE_OF_EACH[2:] if not isinstance(kind, Natural)], ids=repr
)
def test_targets_that_are_not_labels_allow_iid_and_natural_only(partition: Partition) -> None:
    with pytest.raises(FedmuxError) as error:
        cut(partition, labels=None)
    assert str(error.value) == (
        f'partition: kind "{partition.kind}" needs labels but the targets are numbers; use kind = "iid"'
    )


@pytest.mark.parametrize(
    ("partition", "changes", "line"),
    [
        (
            Iid(sizes=100),
            {},
            "partition: 24 clients need 2400 points in all but there are 2000; "
            "set disjoint = false, lower sizes, or take more data",
        ),
        (
            Iid(sizes=2001, disjoint=False),
            {},
            "partition: a client needs 2001 points but there are 2000; lower sizes or take more data",
        ),
        (
            Iid(),
            {"points": 20, "labels": None},
            "partition: 24 clients cannot share 20 points equally; "
            "set sizes to a count with disjoint = false, or take more data",
        ),
        (
            Classes(classes=11, sizes=5),
            {},
            "partition: a client needs 11 classes but there are 10 labels; lower classes",
        ),
        (
            Clusters(clusters=11, consistent=True, sizes=5),
            {},
            "partition: 11 clusters need a label each but there are 10 labels; lower clusters",
        ),
        (
            Natural(),
            {"groups": None},
            'partition: kind "natural" needs data with groups; use another kind or other data',
        ),
        (
            Natural(),
            {"groups": GROUPS % 9},
            "partition: 24 clients need a group each but the data has 9 groups; "
            "lower clients or take more data",
        ),
    ],
)
def test_what_cannot_be_split_is_refused_in_one_line(
    partition: Partition, changes: dict[str, Any], line: str
) -> None:
    with pytest.raises(FedmuxError) as error:
        cut(partition, **changes)
    assert str(error.value) == line


def test_a_client_whose_labels_run_out_is_named_with_them() -> None:
    found = {"labels": np.arange(60) % 6 + 3, "points": 60, "holders": np.array([17])}
    with pytest.raises(FedmuxError) as error:
        cut(Clusters(clusters=2, consistent=True, sizes=40), **found)
    assert re.fullmatch(
        r"partition: client 17 needs 40 points of labels [3-8], [3-8], [3-8] but only 30 are left; "
        "set disjoint = false, lower sizes, or take more data",
        str(error.value),
    )
    with pytest.raises(FedmuxError) as error:
        cut(Classes(classes=1, sizes=40, disjoint=False), **found)
    assert re.fullmatch(
        r"partition: client 17 needs 40 points of label [3-8] but there are only 10; "
        "lower sizes or take more data",
        str(error.value),
    )
    many = {"labels": np.arange(60) % 20, "points": 60, "holders": np.array([17])}
    with pytest.raises(FedmuxError, match=r"of labels (\d+, ){8}\.\.\. but only 36 are left"):
        cut(Classes(classes=12, sizes=40), **many)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (
            {"kind": "iid", "sizes": True},
            'sizes must be "equal", a count, [low, high], or {low, high, high_share}',
        ),
        (
            {"kind": "iid", "sizes": 2.5},
            'sizes must be "equal", a count, [low, high], or {low, high, high_share}',
        ),
        ({"kind": "iid", "sizes": 0}, "greater than 0"),
        ({"kind": "iid", "sizes": "even"}, "should be 'equal'"),
        ({"kind": "iid", "sizes": [5, 3]}, "write [3, 5], got [5, 3]"),
        ({"kind": "iid", "sizes": [5]}, "Field required"),
        (
            {"kind": "iid", "sizes": {"low": [1, 2], "high": [3, 4], "high_share": 1.5}},
            "less than or equal to 1",
        ),
        ({"kind": "iid", "share": 0.3}, "Extra inputs are not permitted"),
        ({"kind": "label-share", "share": 0}, "greater than 0"),
        ({"kind": "classes", "classes": 0}, "greater than or equal to 1"),
        ({"kind": "dirichlet", "alpha": 0}, "greater than 0"),
        ({"kind": "dirichlet", "alpha": float("nan")}, "finite number"),
        ({"kind": "dirichlet", "alpha": 1e7}, "less than or equal to"),
        ({"kind": "clusters", "clusters": 2}, "Field required"),
        ({"kind": "natural", "sizes": 3}, "Extra inputs are not permitted"),
        ({"kind": "natural", "cap": 0}, "greater than 0"),
        ({"kind": "other"}, "'iid', 'label-share', 'classes', 'dirichlet', 'clusters', 'natural'"),
    ],
)
def test_a_wrong_table_gives_one_complaint(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as error:
        READ.validate_python(table)
    (found,) = error.value.errors()
    assert complaint in found["msg"]


@pytest.mark.parametrize("partition", ONE_OF_EACH, ids=repr)
def test_a_partition_survives_being_written_and_read(partition: Partition) -> None:
    assert READ.validate_json(READ.dump_json(partition)) == partition


def test_every_setting_is_described() -> None:
    for kind in (Iid, LabelShare, Classes, Dirichlet, Clusters, Natural, TwoLevels):
        assert all(field.description for field in kind.model_fields.values())
