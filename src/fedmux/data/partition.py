"""How one task's training points are divided over its clients.

A partition is one of six kinds; `split` turns it into the points of each client. The label kinds follow the
papers: a share of the labels and two levels of size [P1], a number of classes [P2], clusters of clients over
disjoint blocks of labels [P3].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from fedmux.data.label_pools import Wish, draw_by_label
from fedmux.data.sizes import Sizes, draw_sizes
from fedmux.errors import FedmuxError
from fedmux.randomness import Stream, generator
from fedmux.settings import Checked

# Draws of one (stream, task) that must not share a counter block differ in the round word.
_CLIENT, _SIZES, _POOL = 0, 1, 2  # of Stream.PARTITION
_CONSISTENT, _INDEPENDENT, _BLOCKS = 0, 1, 2  # of Stream.CLUSTER


class _Sized(Checked):
    sizes: Sizes = Field(
        "equal",
        description='points per client: "equal" (the whole pool evenly), a count, a range [low, high], '
        "or two levels {low, high, high_share}",
    )
    disjoint: bool = Field(
        True,
        description="no two clients share a point; false lets clients draw independently of each other, "
        "never twice the same point inside one client",
    )


class Iid(_Sized):
    """Every client draws from the whole pool."""

    kind: Literal["iid"] = Field("iid", description="uniform draws from the whole pool")


class LabelShare(_Sized):
    """Every client holds a share of the labels [P1]."""

    kind: Literal["label-share"] = Field("label-share", description="each client holds some of the labels")
    share: float = Field(gt=0, le=1, description="share of the labels a client holds, at least one label")


class Classes(_Sized):
    """Every client holds a number of classes [P2]."""

    kind: Literal["classes"] = Field("classes", description="each client holds a fixed number of classes")
    classes: int = Field(ge=1, description="number of random classes a client holds")


class Dirichlet(_Sized):
    """Every client has its own label proportions."""

    kind: Literal["dirichlet"] = Field("dirichlet", description="label proportions differ between clients")
    alpha: float = Field(
        gt=0,
        le=1e6,
        description="concentration of the Dirichlet distribution; small means few labels per client",
    )


class Clusters(_Sized):
    """Clusters of clients, each over its own block of labels [P3]."""

    kind: Literal["clusters"] = Field("clusters", description="clusters of clients, a block of labels each")
    clusters: int = Field(ge=1, description="number of clusters, and of disjoint blocks of labels")
    consistent: bool = Field(description="a client has the same cluster in all tasks")


class Natural(Checked):
    """The groups of the data (roles, writers) are the clients."""

    kind: Literal["natural"] = Field("natural", description="the groups of the data are the clients")
    cap: PositiveInt | None = Field(None, description="most points of a client, drawn at random; none: all")


Partition = Annotated[
    Iid | LabelShare | Classes | Dirichlet | Clusters | Natural,
    Field(discriminator="kind", description="how a task's training points are divided over its clients"),
]


@dataclass(frozen=True, eq=False)
class Split:
    """Client i owns the training points `indices[offsets[i]:offsets[i + 1]]`."""

    indices: np.ndarray  # (total,) int64
    offsets: np.ndarray  # (N + 1,) int64
    cluster: np.ndarray | None  # (N,) int64, -1 where the client lacks the task; None without clusters
    overlap: float  # share of the distinct used points that more than one client holds


def split(
    partition: Partition,
    labels: np.ndarray | None,
    groups: np.ndarray | None,
    holders: np.ndarray,
    *,
    points: int,
    clients: int,
    seed: int,
    task: int,
) -> Split:
    """Divide `points` training points over the clients in `holders` (sorted ids; the others get none).

    `labels` and `groups` are (points,) integers, or None where the data has none.
    """
    if labels is None and not isinstance(partition, Iid | Natural):
        raise FedmuxError(
            f'partition: kind "{partition.kind}" needs labels but the targets are numbers; use kind = "iid"'
        )
    cluster = _clusters(partition, holders, clients, seed, task) if isinstance(partition, Clusters) else None
    owned = np.zeros(clients, dtype=np.int64)  # points of each client, (N,)
    indices = np.zeros(0, dtype=np.int64)
    if isinstance(partition, Natural):
        indices, owned[holders] = _by_group(partition, groups, len(holders), seed, task)
    elif len(holders):
        sizes = draw_sizes(
            partition.sizes,
            points=points,
            holders=len(holders),
            disjoint=partition.disjoint,
            rng=generator(seed, Stream.PARTITION, round=_SIZES, task=task),
        )
        pool = generator(seed, Stream.PARTITION, round=_POOL, task=task)
        if isinstance(partition, Iid):
            indices = _uniformly(points, sizes, partition.disjoint, pool)
        else:
            assert labels is not None
            indices = draw_by_label(
                labels,
                holders,
                sizes,
                disjoint=partition.disjoint,
                wish=_wish(partition, len(np.unique(labels)), cluster, seed, task),
                pool=pool,
                own=lambda client: generator(seed, Stream.PARTITION, round=_CLIENT, client=client, task=task),
            )
        owned[holders] = sizes
    offsets = np.concatenate(([0], np.cumsum(owned)))
    return Split(indices, offsets, cluster, _overlap(indices, points))


def _overlap(indices: np.ndarray, points: int) -> float:
    held = np.bincount(indices, minlength=points)  # number of clients that hold each point, (points,)
    return float((held > 1).sum() / max(1, (held > 0).sum()))


def _uniformly(points: int, sizes: np.ndarray, disjoint: bool, rng: np.random.Generator) -> np.ndarray:
    if disjoint:
        return rng.permutation(points)[: sizes.sum()]
    return np.concatenate([rng.choice(points, size, replace=False, shuffle=False) for size in sizes.tolist()])


def _by_group(
    partition: Natural, groups: np.ndarray | None, holders: int, seed: int, task: int
) -> tuple[np.ndarray, np.ndarray]:
    """The points of as many groups as there are holders, and how many each gives."""
    if groups is None:
        raise FedmuxError('partition: kind "natural" needs data with groups; use another kind or other data')
    found, code, count = np.unique(groups, return_inverse=True, return_counts=True)
    if holders > len(found):
        raise FedmuxError(
            f"partition: {holders} clients need a group each but the data has {len(found)} groups; "
            "lower clients or take more data"
        )
    rng = generator(seed, Stream.PARTITION, round=_POOL, task=task)
    chosen = rng.permutation(len(found))[:holders]
    shuffled = rng.permutation(len(groups))
    ordered = shuffled[np.argsort(code[shuffled], kind="stable")]  # group by group, random order inside
    starts = np.cumsum(count) - count
    owned = count[chosen] if partition.cap is None else np.minimum(count[chosen], partition.cap)
    within = np.arange(owned.sum()) - np.repeat(np.cumsum(owned) - owned, owned)  # 0, 1, .. inside each group
    return ordered[np.repeat(starts[chosen], owned) + within], owned


def _balanced(count: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """A random part 0..parts-1 for each of `count` things; sizes of parts differ by at most one."""
    return rng.permutation(rng.permutation(parts)[np.arange(count) % parts])


def _clusters(partition: Clusters, holders: np.ndarray, clients: int, seed: int, task: int) -> np.ndarray:
    """The cluster of each client, (N,). Consistent: balanced over all N, else over the task's holders."""
    cluster = np.full(clients, -1, dtype=np.int64)
    if partition.consistent:
        rng = generator(seed, Stream.CLUSTER, round=_CONSISTENT)
        cluster[holders] = _balanced(clients, partition.clusters, rng)[holders]
    else:
        rng = generator(seed, Stream.CLUSTER, round=_INDEPENDENT, task=task)
        cluster[holders] = _balanced(len(holders), partition.clusters, rng)
    return cluster


def _wish(
    partition: LabelShare | Classes | Dirichlet | Clusters,
    labels: int,
    cluster: np.ndarray | None,
    seed: int,
    task: int,
) -> Callable[[int, int, np.random.Generator], Wish]:
    """What a client with so many points asks for, as a function of (client, size, rng)."""
    if isinstance(partition, Dirichlet):
        concentration = np.full(labels, partition.alpha)

        def proportions(_client: int, size: int, rng: np.random.Generator) -> Wish:
            counts = rng.multinomial(size, rng.dirichlet(concentration))
            return Wish(np.flatnonzero(counts), counts)

        return proportions
    if isinstance(partition, Clusters):
        if partition.clusters > labels:
            raise FedmuxError(
                f"partition: {partition.clusters} clusters need a label each but there are {labels} labels; "
                "lower clusters"
            )
        assert cluster is not None
        rng = generator(seed, Stream.CLUSTER, round=_BLOCKS, task=task)
        block = _balanced(labels, partition.clusters, rng)  # the cluster that owns each label
        members = [np.flatnonzero(block == part) for part in range(partition.clusters)]
        return lambda client, _size, _rng: Wish(members[cluster[client]])
    if isinstance(partition, LabelShare):
        held = max(1, round(partition.share * labels))
    else:
        held = partition.classes
        if held > labels:
            raise FedmuxError(
                f"partition: a client needs {held} classes but there are {labels} labels; lower classes"
            )
    return lambda _client, _size, rng: Wish(rng.permutation(labels)[:held])
