"""The probabilities that minimise the variance of the updates, in closed form ([P1] Theorems 9 and 10).

    minimise  sum_i B_i sum_s U_is^2 / p_is    subject to  sum_s p_is <= 1,  sum_i B_i sum_s p_is = m

U already contains d / B. Given a client's total q_i, Cauchy-Schwarz gives p_is = q_i U_is / M_i with
M_i = sum_s U_is; what remains is water-filling, q_i = min(1, c M_i), where c solves
sum_i B_i min(1, c M_i) = m. Saturation (q_i = 1) is a property of a client's processors, the same for all
tasks, and the denominator runs over all tasks: the printed theorems differ in both, [P1p] Eq. 5 does not.
"""

import numpy as np

from fedmux.population import Bools, Floats, Ints, row_sums


def optimal_probabilities(
    scores: Floats,
    capacity: Ints,
    jobs: float,
    *,
    available: Bools | None = None,
    floor: float = 0.0,
) -> Floats:
    """p (N x S) for scores U (N x S, including d / B), processors B (N) and m expected jobs.

    `floor` is added to the score of every available pair. Pairs outside `available` get 0 whatever their
    score. `jobs` is capped at the number of processors. Clients whose scores are all 0 get what the others
    cannot take, uniformly over their tasks.
    """
    scores, capacity, available = checked(scores, capacity, available)
    if not jobs >= 0:
        raise ValueError(f"jobs must be at least 0, got {jobs}")
    if not 0 <= floor < np.inf:
        raise ValueError(f"floor must be finite and at least 0, got {floor}")
    if not capacity.all():
        available = available & (capacity > 0)[:, None]
    probability = np.where(available, scores + floor if floor else scores, 0.0)
    largest = probability.max(initial=0.0)
    if largest > 0:
        probability /= largest  # so that no range of scores overflows
    mass = row_sums(probability)  # M
    scored = mass > 0
    unscored = np.flatnonzero(~scored)
    unscored = unscored[available[unscored].any(1)]
    room = float(capacity[scored].sum())  # V+
    spare = float(capacity[unscored].sum())
    jobs = min(jobs, room + spare)
    total = np.zeros(len(mass))
    total[scored] = saturate(mass[scored], capacity[scored], jobs) if jobs < room else 1.0
    probability *= np.divide(total, mass, out=total, where=scored)[:, None]
    if jobs >= room and len(unscored):
        has = available[unscored]
        probability[unscored] = (jobs - room) / spare * has / has.sum(1, keepdims=True)
    return probability


def saturate(mass: Floats, capacity: Ints, jobs: float) -> Floats:
    """q_i = min(1, c M_i) with sum_i B_i q_i = m, for M > 0 and 0 <= m < sum B.

    The set of saturated clients grows until c M <= 1 for all others: phi(c) = sum B min(1, cM) is concave, so
    each pass is a Newton step from below and stays below the root. Usually two to six passes suffice, without
    a sort; if adversarial scores need many more, the rest is sorted.
    """
    total = np.ones(len(mass))
    rest: Ints | slice = slice(None)  # the places of those that are left, whose arrays get shorter
    for _ in range(16):
        tail = float((capacity * mass).sum())
        # Without a division, and strict: a client at exactly 1 need not be in the set.
        over = jobs * mass > tail
        if not over.any():
            total[rest] = np.minimum(1.0, jobs / tail * mass)
            return total
        used = float(capacity[over].sum())
        if not used < jobs:  # rounding only: in exact arithmetic the saturated never use up m
            break
        left = np.flatnonzero(~over)
        rest = left if isinstance(rest, slice) else rest[left]
        jobs, mass, capacity = jobs - used, mass[left], capacity[left]
    total[rest] = _saturate_sorted(mass, capacity, jobs)
    return total


def _saturate_sorted(mass: Floats, capacity: Ints, jobs: float) -> Floats:
    order = np.argsort(-mass, kind="stable")
    ordered, processors = mass[order], capacity[order]
    tail = np.cumsum((processors * ordered)[::-1])[::-1]
    left = jobs - np.concatenate([[0], np.cumsum(processors)[:-1]])  # of m, with all before saturated
    first = int(np.argmax(tail >= left * ordered))  # the number of saturated clients
    total = np.ones(len(mass))
    total[order[first:]] = np.minimum(1.0, left[first] / tail[first] * ordered[first:])
    return total


def checked_units(units: Floats | None, tasks: int) -> Floats:
    """Load of a job of each task on a processor (S), default 1."""
    if units is None:
        return np.ones(tasks)
    units = np.asarray(units, np.float64)
    if units.shape != (tasks,) or not ((units >= 1) & np.isfinite(units)).all():
        raise ValueError(f"units must be one number of at least 1 for each task, got {units.tolist()}")
    return units


def checked(scores: Floats, capacity: Ints, available: Bools | None) -> tuple[Floats, Ints, Bools]:
    """Arrays of the right shape, or a ValueError that names client and task."""
    scores, capacity = np.asarray(scores, np.float64), np.asarray(capacity)
    if scores.ndim != 2 or capacity.shape != scores.shape[:1]:
        raise ValueError(f"scores must be N x S and capacity N, got {scores.shape} and {capacity.shape}")
    available = np.ones(scores.shape, bool) if available is None else np.asarray(available, bool)
    if available.shape != scores.shape:
        raise ValueError(f"available must have the shape of scores {scores.shape}, got {available.shape}")
    if capacity.dtype.kind not in "iu" or (capacity < 0).any():
        bad = int(np.argmax(~(capacity >= 0)))
        raise ValueError(f"capacity must be whole numbers of at least 0, client {bad} has {capacity[bad]}")
    if scores.min(initial=0.0) >= 0 and scores.max(initial=0.0) < np.inf:  # not with a NaN
        return scores, capacity, available
    wrong = available & ~(np.isfinite(scores) & (scores >= 0))
    if wrong.any():
        client, task = (int(index[0]) for index in np.nonzero(wrong))
        raise ValueError(
            f"the score of client {client} for task {task} must be finite and at least 0, "
            f"got {scores[client, task]}"
        )
    return scores, capacity, available
