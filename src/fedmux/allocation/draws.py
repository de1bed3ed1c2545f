"""Correlated draws with the same marginals: fewer surprises in how much is trained.

Unbiasedness needs only the marginals, so it is kept; the variance formulas, which assume independent
processors, are not. Both give a processor at most one task.
"""

import itertools

import numpy as np

from fedmux.population import Floats, Ints

DONE = 1e-12  # a probability this close to 0 or 1 is decided


def systematic(probability: Floats, processors: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(client, task) of each busy processor. Their number is m rounded up or down.

    Processors lie in random order on a line, each as long as its total probability; the points u, u + 1,
    u + 2, ... with one uniform u pick processors and, by where they fall, the task.
    """
    owner = rng.permutation(np.repeat(np.arange(len(processors)), processors))
    total = probability.sum(1)
    end = np.cumsum(total[owner])
    length = end[-1] if len(end) else 0.0
    points = rng.random() + np.arange(int(np.ceil(length)))
    points = points[points < length]
    place = np.searchsorted(end, points, side="right")
    client = owner[place]
    inside = points - (end[place] - total[client])
    cumulative = np.cumsum(probability[client], axis=1)
    inside = np.clip(inside, 0.0, np.nextafter(cumulative[:, -1], 0))
    return client, (inside[:, None] >= cumulative).sum(1)


def dependent_rounding(probability: Floats, processors: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(client, task) of each busy processor. Every task's number is its expectation rounded up or down.

    Gandhi, Khuller, Parthasarathy and Srinivasan (2006) on the graph of processors and tasks: along a cycle
    or a maximal path of undecided edges, shift probability back and forth until one is decided; the chance
    of each direction keeps the marginals. Takes O(processors x tasks^2) steps of Python.
    """
    owner = np.repeat(np.arange(len(processors)), processors)
    value = {
        (int(row), int(task)): float(probability[owner[row], task])
        for row, task in zip(*np.nonzero(probability[owner] > DONE))
    }
    chosen = [edge for edge, p in value.items() if p >= 1 - DONE]
    value = {edge: p for edge, p in value.items() if p < 1 - DONE}
    # Nodes are (0, processor) and (1, task); neighbours are kept in insertion order, so draws repeat.
    neighbours: dict[tuple[int, int], dict[tuple[int, int], None]] = {}
    for row, task in value:
        neighbours.setdefault((0, row), {})[1, task] = None
        neighbours.setdefault((1, task), {})[0, row] = None
    leaves = [node for node, near in neighbours.items() if len(near) == 1]
    while value:
        while leaves and len(neighbours.get(leaves[-1], ())) != 1:
            leaves.pop()
        start = leaves[-1] if leaves else (0, next(iter(value))[0])
        edges = _walk(start, neighbours)
        up, down = edges[::2], edges[1::2]
        rise = min([1 - value[e] for e in up] + [value[e] for e in down])
        fall = min([value[e] for e in up] + [1 - value[e] for e in down])
        shift = rise if rng.random() * (rise + fall) < fall else -fall
        for edge, change in [(e, shift) for e in up] + [(e, -shift) for e in down]:
            value[edge] += change
            if DONE < value[edge] < 1 - DONE:
                continue
            if value.pop(edge) >= 1 - DONE:
                chosen.append(edge)
            for here, there in (((0, edge[0]), (1, edge[1])), ((1, edge[1]), (0, edge[0]))):
                del neighbours[here][there]
                if len(neighbours[here]) == 1:
                    leaves.append(here)
    rows, tasks = (np.array(part, np.int64) for part in (zip(*chosen) if chosen else ((), ())))
    return owner[rows], tasks


def _walk(
    start: tuple[int, int], neighbours: dict[tuple[int, int], dict[tuple[int, int], None]]
) -> list[tuple[int, int]]:
    """Edges of a maximal path from a leaf, or of the first cycle met on the way."""
    path = [start]
    place = {start: 0}
    while True:
        before = path[-2] if len(path) > 1 else None
        onward = next((node for node in neighbours[path[-1]] if node != before), None)
        if onward is None:
            nodes = path
        elif onward in place:
            nodes = [*path[place[onward] :], onward]
        else:
            place[onward] = len(path)
            path.append(onward)
            continue
        return [(a[1], b[1]) if a[0] == 0 else (b[1], a[1]) for a, b in itertools.pairwise(nodes)]
