"""Dependent rounding of very many clients: marginals and numbers as exact as one by one, in arrays throughout.

Client i's expected jobs y_is = B_i p_is become multiples of a step 2^-k and the step doubles until it is 1.

- Halving: an odd multiple goes up or down by one step, at even odds, so means stay. Odd entries are paired within
  their task, and within a client that could otherwise get more than B_i; the two of a pair go opposite ways.
  Pairs form paths and even cycles, which always allow it. At most one entry of a task has no partner: sums over
  a task, and over such a client, go to the next multiple up or down, so they never cross a whole number.
- The first step: where B_i exceeds a client's total by a step for each task, its entries may go up or down as they
  like. Systematic sampling along each task does it, over the clients in random order, and rounds the task's sum up
  or down as well: few entries are left. Clients with less room join at finer steps, before the others; where the
  points of a task fall then depends on how its sum was rounded so far, so that the sum of all is rounded once.

The finest step is 2^-40: a probability of a client that is full to within that may be off by 1e-12.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fedmux.population import Bools, Floats, Ints, row_sums

FINEST = 40


@dataclass
class Entries:
    """What is left of the expected jobs, in order of tasks: whole numbers of steps above 0."""

    row: Ints  # of a client, in the order in which they join
    task: Ints
    number: Ints


def halving(probability: Floats, processors: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(client, task) of each busy processor. Every task gets its expected number, rounded up or down."""
    tasks = probability.shape[1]
    levels, groups = _groups(probability, processors, rng)
    order, sizes = np.concatenate(groups), [len(group) for group in groups]
    limit = processors[order]
    expected = np.zeros(tasks)  # of the clients that have joined
    entries = _finest(probability[groups[0]] * processors[groups[0], None], limit[: sizes[0]], rng)
    if len(entries.row):
        expected += np.bincount(entries.task, entries.number, tasks) * 0.5**FINEST
    joined = sizes[0]
    for finer, level, group in zip(levels, levels[1:], groups[1:]):
        for k in range(finer - 1, level - 1, -1):
            entries = _halved(entries, limit, k, rng)
        entries = _join(entries, joined, probability, processors, group, level, expected, rng)
        joined += len(group)
    for k in range(levels[-1] - 1, -1, -1):
        entries = _halved(entries, limit, k, rng)
    return np.repeat(order[entries.row], entries.number), np.repeat(entries.task, entries.number)


def _groups(
    probability: Floats, processors: Ints, rng: np.random.Generator
) -> tuple[list[int], list[Ints]]:
    """Levels k, the finest first, and the clients that join at each, in random order.

    The coarsest step is fine enough for clients that are up to a third full.
    """
    tasks = probability.shape[1]
    coarse = int(np.ceil(np.log2(1.5 * tasks)))
    levels = [FINEST, *(k for k in (coarse + 13, coarse + 5, coarse) if k < FINEST)]
    load = processors * row_sums(probability)
    rest = np.flatnonzero(load > 0)
    room = (processors - load)[rest]
    groups = []
    for coarser in levels[1:]:
        tight = room * 2.0**coarser < tasks
        groups.append(rng.permutation(rest[tight]))
        rest, room = rest[~tight], room[~tight]
    groups.append(rng.permutation(rest))
    return levels, groups


def _finest(expected: Floats, limit: Ints, rng: np.random.Generator) -> Entries:
    """Full clients, rounded to the finest step up or down; what a sum is off by then goes to the largest entry."""
    number = np.floor(expected * 2.0**FINEST + rng.random(expected.shape)).astype(np.int64)
    total = np.rint(np.minimum(expected.sum(1), limit) * 2.0**FINEST).astype(np.int64)
    if number.size:
        number[np.arange(len(number)), expected.argmax(1)] += total - number.sum(1)
    task, row = np.nonzero(number.T)
    return Entries(row, task, number[row, task])


def _join(
    entries: Entries,
    joined: int,
    probability: Floats,
    processors: Ints,
    group: Ints,
    level: int,
    expected: Floats,
    rng: np.random.Generator,
) -> Entries:
    """The entries and those of clients that join at a level; adds to `expected` what is expected of them."""
    tasks = probability.shape[1]
    before = np.bincount(entries.task, entries.number, tasks)
    ends = np.searchsorted(entries.task, np.arange(tasks + 1))
    chances, steps = probability[group], processors[group] * 2.0**level
    rows, numbers = [], []
    for task in range(tasks):
        length = chances[:, task] * steps
        whole, above = np.divmod(expected[task] * 2.0**level, 1)
        expected[task] += length.sum() * 0.5**level
        # The points u, u + 1, ... on a line on which the entries so far fill the first `above`: if their sum
        # was rounded up then a point fell there, otherwise none.
        point, up = rng.random(), before[task] > whole
        place, number = _sampled(length, 1 - above * point if up else (1 - above) * point)
        old = slice(ends[task], ends[task + 1])
        rows.append(np.concatenate([entries.row[old], joined + place]))
        numbers.append(np.concatenate([entries.number[old], number]))
    task_of = np.repeat(np.arange(tasks), [len(row) for row in rows])
    return Entries(np.concatenate(rows), task_of, np.concatenate(numbers))


def _sampled(length: Floats, first: float) -> tuple[Ints, Ints]:
    """Which entries are above 0, and their whole numbers: up where a point first, first + 1, ... falls on one's
    fraction."""
    large = length >= 1
    whole = np.floor(length) if large.any() else None
    end = np.cumsum(length if whole is None else length - whole)
    points = first + np.arange(np.ceil(end[-1] if len(end) else 0.0))
    place = np.searchsorted(end, points, side="right")
    place = place[place < len(end)]
    place = place[np.diff(place, prepend=-1) > 0]  # by rounding alone could a place be hit twice
    if whole is None:
        return place, np.ones(len(place), np.int64)
    whole[place] += 1
    place = np.flatnonzero(whole)
    return place, whole[place].astype(np.int64)


def _halved(entries: Entries, limit: Ints, level: int, rng: np.random.Generator) -> Entries:
    """The entries in steps of 2^-level, from steps of half of that."""
    number = entries.number
    odd = np.flatnonzero(number & 1)
    task = entries.task[odd]
    count = np.bincount(task)
    first = np.cumsum(count) - count
    pairs = (count + 1) // 2
    rank = np.arange(len(odd)) - first[task]
    pair, side = (np.cumsum(pairs) - pairs)[task] + rank // 2, (rank & 1).astype(bool)
    most = np.bincount(entries.row, (number + 1) >> 1)  # if every odd entry went up
    over = most > limit[: len(most)] * 2.0**level
    heads = rng.random(int(pairs.sum())) < 0.5
    left, right = _within_rows(entries.row[odd], over)
    if len(left):
        used, place = np.unique(np.concatenate([pair[left], pair[right]]), return_inverse=True)
        unlike = ~(side[left] ^ side[right])
        heads[used] = _tossed(len(used), *np.split(place, 2), unlike, rng)
    number = number >> 1
    number[odd] += heads[pair] ^ side
    kept = number > 0
    return Entries(entries.row[kept], entries.task[kept], number[kept])


def _within_rows(row: Ints, over: Bools) -> tuple[Ints, Ints]:
    """Places of the two of each pair of entries of the same row, for rows that need pairs."""
    place = np.flatnonzero(over[row])
    place = place[np.argsort(row[place], kind="stable")]
    row = row[place]
    begins = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]])) if len(row) else place
    rank = np.arange(len(row)) - np.repeat(begins, np.diff([*begins, len(row)]))
    left = np.flatnonzero((rank[:-1] % 2 == 0) & (row[1:] == row[:-1]))
    return place[left], place[left + 1]


def _tossed(coins: int, left: Ints, right: Ints, unlike: Bools, rng: np.random.Generator) -> Bools:
    """Fair coins, of which some two must come up alike, or unlike.

    Every coin appears twice, as it is and turned over; what must agree is connected. A connected component and
    its reverse are the two ways in which its coins can fall.
    """
    start = np.concatenate([left, left + coins])
    end = np.concatenate([right + coins * unlike, right + coins * ~unlike])
    graph = csr_array((np.ones(len(start), np.int8), (start, end)), shape=(2 * coins, 2 * coins))
    components, label = connected_components(graph, directed=False)
    straight, turned = label[:coins], label[coins:]
    toss = rng.random(components) < 0.5
    return toss[np.minimum(straight, turned)] ^ (straight < turned)
