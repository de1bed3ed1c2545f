"""Dependent rounding of very many clients: the same promises as edge by edge, in arrays throughout.

Client i's expected jobs y_is = B_i p_is become multiples of a step 2^-k, and the step doubles until it is 1.

- Halving: an odd multiple goes up or down by one step, at even odds, so means stay. Odd entries are paired
  within their task, and within a client that could otherwise get more than B_i; the two of a pair go opposite
  ways. Pairs form paths and even cycles, which always allow it. At most one entry of a task has no partner,
  so sums over a task go to the next multiple up or down; the same holds for such a client. They never cross
  a whole number, which is a multiple of every step.
- The first step: where B_i exceeds a client's total by a step for each task, each of its entries may go up or
  down, whatever the others do. Systematic sampling along a task, over clients in random order, does it and
  rounds the task's sum as well; few entries are left. Clients with less room join before, at finer steps.
  Where a task's points fall then depends on which way its sum went so far, so that the sum of all is rounded.

The finest step is 2^-40: probabilities of a client that is full to within that may be off by 1e-12.
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
    levels, groups = _groups(probability, processors, rng)
    order, limit = np.concatenate(groups), processors[np.concatenate(groups)]
    full, joined = groups[0], len(groups[0])
    entries = _finest(probability[full] * processors[full, None], processors[full], rng)
    expected = _sums(entries, probability.shape[1]).astype(np.float64)  # of those that have joined, in steps
    for finer, level, group in zip(levels, levels[1:], groups[1:]):
        for k in reversed(range(level, finer)):
            entries = _halved(entries, limit, k, rng)
        expected *= 0.5 ** (finer - level)
        steps = np.ldexp(processors[group].astype(np.float64), level)
        entries = _join(entries, joined, probability[group], steps, expected, rng)
        joined += len(group)
    for k in reversed(range(levels[-1])):
        entries = _halved(entries, limit, k, rng)
    return np.repeat(order[entries.row], entries.number), np.repeat(entries.task, entries.number)


def _sums(entries: Entries, tasks: int) -> Ints:
    """Steps of the entries of each task (S)."""
    total = np.zeros(tasks, np.int64)
    np.add.at(total, entries.task, entries.number)
    return total


def _groups(probability: Floats, processors: Ints, rng: np.random.Generator) -> tuple[list[int], list[Ints]]:
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
    """Full clients, in whole numbers of the finest step; the largest entry takes what the total is off by."""
    number = np.floor(expected * 2.0**FINEST + rng.random(expected.shape)).astype(np.int64)
    total = np.rint(np.minimum(expected.sum(1), limit) * 2.0**FINEST).astype(np.int64)
    if number.size:
        number[np.arange(len(number)), expected.argmax(1)] += total - number.sum(1)
    task, row = np.nonzero(number.T)
    return Entries(row, task, number[row, task])


def _join(
    entries: Entries, joined: int, chances: Floats, steps: Floats, expected: Floats, rng: np.random.Generator
) -> Entries:
    """The entries and those of clients that join: their probabilities, and their processors in steps.

    Adds to `expected` (S) what is expected of them.
    """
    tasks = chances.shape[1]
    before, ends = _sums(entries, tasks), np.searchsorted(entries.task, np.arange(tasks + 1))
    rows, numbers = [], []
    for task in range(tasks):
        length = chances[:, task] * steps
        whole, above = np.divmod(expected[task], 1)
        expected[task] += length.sum()
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
    """Lengths as whole numbers, up where a point first, first + 1, ... falls on a fraction.

    Returns the places and the numbers of those above 0.
    """
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
    if not len(number):
        return entries
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
        used, coin = np.unique(np.stack([pair[left], pair[right]]), return_inverse=True)
        unlike = ~(side[left] ^ side[right])
        heads[used] = _tossed(len(used), coin[0], coin[1], unlike, rng)
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

    Every coin appears twice, as it is and turned over; what must agree is connected. A component and its
    reverse are the two ways in which its coins can fall.
    """
    start = np.concatenate([left, left + coins])
    end = np.concatenate([right + coins * unlike, right + coins * ~unlike])
    graph = csr_array((np.ones(len(start), np.int8), (start, end)), shape=(2 * coins, 2 * coins))
    components, label = connected_components(graph, directed=False)
    straight, turned = label[:coins], label[coins:]
    toss = rng.random(components) < 0.5
    return toss[np.minimum(straight, turned)] ^ (straight < turned)
