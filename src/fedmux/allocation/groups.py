"""Groups of similar clients in rotation (MMFL-Group Sampling, [P3]): clustering, slots, rotation.

C-step: clients report their losses for all models and are clustered by them. T-step: each model trains on
one group at a time, and every group meets every model within a cycle. Pure functions; the allocator that
keeps a cycle's state is in `group_allocator.py`.
"""

from dataclasses import dataclass

import numpy as np

from fedmux.population import Floats, Ints

MOST_COMPARED = 4000  # with more clients, a sample determines the groups: a silhouette compares all pairs


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups 0..L-1 of clients, numbered by their smallest member."""

    label: Ints  # n
    centroids: Floats  # L x columns, in the units of the losses
    silhouette: float  # mean over clients; 0 where it is not defined


def cluster(
    losses: Floats, models: int, seed: int, *, most: int | None = None, scale: bool = False
) -> Grouping:
    """Group clients (rows) by their losses (columns, NaN where missing); [P3] C-step.

    K-means; the number of groups, from max(models, 2) to `most` (default 2 models), maximises the mean
    silhouette, with ties going to fewer groups. Missing losses count as their column's mean. `scale`
    standardises columns first, for models whose losses differ in scale.

    With more than `MOST_COMPARED` clients, a sample of that size determines the number of groups and their
    centres, and K-means over all clients starts from these. The silhouette is then the sample's.
    """
    rng = np.random.default_rng(seed)
    points = fill_missing(losses)
    if scale:
        points = (points - points.mean(0)) / np.where(points.std(0) > 0, points.std(0), 1.0)
    everybody = len(points) <= MOST_COMPARED
    chosen = np.arange(len(points)) if everybody else rng.choice(len(points), MOST_COMPARED, replace=False)
    sample = points[chosen]
    distinct = len(np.unique(sample, axis=0))
    label, score = np.zeros(len(points), np.int64), 0.0
    candidates = range(max(models, 2), min(most or 2 * models, distinct, len(sample) - 1) + 1)
    if candidates:
        score = -np.inf
        for number in candidates:
            found = _k_means(sample, number, seed)
            quality = _silhouette(sample, found.label)
            if quality > score + 1e-12:
                best, score = found, quality
        if not everybody:
            best = _k_means(points, len(best.centres), seed, start=best.centres)
            score = _silhouette(sample, best.label[chosen])
        label = best.label
    elif len(points) > 1:
        number = min(distinct, len(points), models)
        label = _k_means(points, number, seed).label if number > 1 else label
        label = _halve(label, min(models, len(points)), rng)
    label = number_by_smallest(label)
    raw = fill_missing(losses)
    centroids = np.stack([raw[label == group].mean(0) for group in range(label.max(initial=0) + 1)])
    return Grouping(label, centroids, float(score))


def plane(losses: Floats) -> Floats:
    """Clients' losses projected on their two principal components (n x 2), for plots."""
    points = fill_missing(losses)
    _, _, axes = np.linalg.svd(points - points.mean(0), full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2].sum(1, keepdims=True) + 1e-300)  # the sign is free: fix it
    found = np.zeros((len(points), 2))
    found[:, : len(axes)] = (points - points.mean(0)) @ axes.T
    return found


def fill_missing(losses: Floats) -> Floats:
    """NaN replaced by the mean of the known values in its column (0 without any)."""
    known = ~np.isnan(losses)
    total, count = np.where(known, losses, 0.0).sum(0), known.sum(0)
    return np.where(known, losses, np.divide(total, count, out=np.zeros(len(total)), where=count > 0))


@dataclass(frozen=True, eq=False)
class _Found:
    label: Ints  # n
    centres: Floats  # K x columns


def _k_means(points: Floats, number: int, seed: int, *, start: Floats | None = None) -> _Found:
    """Lloyd's iterations to a fixed point: from `start`, or the best of ten initialisations."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    begin = {"n_init": 10} if start is None else {"n_init": 1, "init": start}
    with threadpool_limits(1):  # fixed order of sums, so that runs are bit-identical
        found = KMeans(number, random_state=seed % 2**32, tol=0, **begin).fit(points)
    return _Found(found.labels_.astype(np.int64), found.cluster_centers_)


def _silhouette(points: Floats, label: Ints) -> float:
    """Mean over the points; the minimum, -1, where it is not defined."""
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points, label)) if 1 < len(np.unique(label)) < len(points) else -1.0


def _halve(label: Ints, wanted: int, rng: np.random.Generator) -> Ints:
    """Halve the largest group at random until there are enough: identical clients are interchangeable."""
    label = number_by_smallest(label)
    while (size := np.bincount(label)).max() > 1 and len(size) < wanted:
        members = rng.permutation(np.flatnonzero(label == size.argmax()))
        label[members[: len(members) // 2]] = len(size)
    return label


def number_by_smallest(label: Ints) -> Ints:
    """Labels renumbered in the order in which they first appear."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    order = np.empty(len(first), np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return order[inverse]


def slots(losses: Floats, groups: int) -> Ints:
    """The model of each slot of a cycle (R = max(groups, models) of them).

    One slot per model; further groups get pseudo-models: the models again, cyclically, largest loss first
    (ties: lower index).
    """
    models = len(losses)
    order = np.argsort(-losses, kind="stable")
    extra = order[np.arange(max(groups - models, 0)) % models] if models else np.zeros(0, np.int64)
    return np.concatenate([np.arange(models), extra])


def rotation(slot_count: int, groups: int, step: int) -> Ints:
    """The group of each slot in a step (0-based) of the cycle, -1: none.

    Slot s uses position (s + 1 + step + 1) mod R. With fewer groups than slots, group j is at position
    floor(j R / L); the other positions are empty, spread evenly.
    """
    at = np.full(slot_count, -1, np.int64)
    at[np.arange(groups) * slot_count // max(groups, 1)] = np.arange(groups)
    return at[(np.arange(slot_count) + step + 2) % slot_count]


def nearest_group(losses: Floats, centroids: Floats) -> int | None:
    """A newcomer's group, by its losses (NaN where missing): the centroid with the largest cosine similarity.

    With a single usable column, or a vector of zeros, cosine is uninformative: then the nearest centroid.
    None without any loss.
    """
    usable = ~np.isnan(losses) & ~np.isnan(centroids).any(0)
    if not usable.any():
        return None
    vector, centres = losses[usable], centroids[:, usable]
    lengths = np.linalg.norm(centres, axis=1) * np.linalg.norm(vector)
    if usable.sum() == 1 or not lengths.any():
        return int(np.argmin(np.linalg.norm(centres - vector, axis=1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return int(np.argmax(np.where(lengths > 0, centres @ vector / lengths, -np.inf)))
