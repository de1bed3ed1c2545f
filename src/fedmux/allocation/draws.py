"""Correlated draws with the same marginals: the amount of training per round varies less.

Unbiasedness needs only the marginals, so it still holds; the variance formulas, which assume independent
processors, do not. Both give a processor at most one task.
"""

import itertools

import numpy as np

from fedmux.allocation.halving import halving
from fedmux.population import Floats, Ints, row_counts, row_sums

Node = tuple[int, int]  # kind, number
Edge = tuple[int, int]  # processor, task

DONE = 1e-12  # a probability this close to 0 or 1 is decided
MANY = 20_000  # undecided edges beyond which they are not taken one by one


def systematic(probability: Floats, processors: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(client, task) of each busy processor. There are m of them, rounded up or down.

    Processors lie in random order on a line, each as long as its total probability; the points u, u + 1,
    u + 2, ... with one uniform u pick processors and, by where they fall, tasks.
    """
    owner = rng.permutation(np.repeat(np.arange(len(processors)), processors))
    total = row_sums(probability)
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
    """(client, task) of each busy processor. Every task gets its expected number, rounded up or down.

    Gandhi, Khuller, Parthasarathy and Srinivasan (2006) on the graph of processors and tasks: along a cycle
    or a maximal path of undecided edges, shift probability back and forth until an edge is decided; the odds
    of the two directions preserve the marginals. Takes O(processors x tasks^2) steps of Python, so many edges
    are rounded by `halving`, which promises the same.
    """
    undecided = (probability > DONE) & (probability < 1 - DONE)
    if processors @ row_counts(undecided) > MANY:
        return halving(probability, processors, rng)
    owner = np.repeat(np.arange(len(processors)), processors)
    value = {
        (int(row), int(task)): float(probability[owner[row], task])
        for row, task in zip(*np.nonzero(probability[owner] > DONE))
    }
    rows, tasks = rounded(value, rng)
    return owner[rows], tasks


def rounded(value: dict[Edge, float], rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The edges (row, column) that are chosen: a row has at most one if its values add up to at most 1, a
    column as many as its values add up to, rounded up or down."""
    chosen = [edge for edge, p in value.items() if p >= 1 - DONE]
    value = {edge: p for edge, p in value.items() if p < 1 - DONE}
    # Nodes are (0, processor) and (1, task). Decided edges are removed from these lists lazily.
    neighbours: dict[Node, list[Node]] = {}
    for row, task in value:
        neighbours.setdefault((0, row), []).append((1, task))
        neighbours.setdefault((1, task), []).append((0, row))
    degree = {node: len(near) for node, near in neighbours.items()}
    leaves = [node for node, number in degree.items() if number == 1]
    left = list(value)
    while value:
        while leaves and degree[leaves[-1]] != 1:
            leaves.pop()
        while left[-1] not in value:
            left.pop()
        edges = _walk(leaves[-1] if leaves else (0, left[-1][0]), neighbours, value)
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
            for node in ((0, edge[0]), (1, edge[1])):
                degree[node] -= 1
                if degree[node] == 1:
                    leaves.append(node)
    rows, columns = (np.array(part, np.int64) for part in (zip(*chosen) if chosen else ((), ())))
    return rows, columns


def _walk(start: Node, neighbours: dict[Node, list[Node]], value: dict[Edge, float]) -> list[Edge]:
    """Edges of a maximal path from a leaf, or of the first cycle met on the way."""
    path = [start]
    place = {start: 0}
    while True:
        onward = _onward(path[-1], path[-2] if len(path) > 1 else None, neighbours[path[-1]], value)
        if onward is None:
            nodes = path
        elif onward in place:
            nodes = [*path[place[onward] :], onward]
        else:
            place[onward] = len(path)
            path.append(onward)
            continue
        return [_edge(a, b) for a, b in itertools.pairwise(nodes)]


def _onward(node: Node, before: Node | None, near: list[Node], value: dict[Edge, float]) -> Node | None:
    """A neighbour across an undecided edge, other than the previous node."""
    came = []
    while near and (near[-1] == before or _edge(node, near[-1]) not in value):
        last = near.pop()
        if last == before:
            came.append(last)
    onward = near[-1] if near else None
    near += came
    return onward


def _edge(a: Node, b: Node) -> Edge:
    return (a[1], b[1]) if a[0] == 0 else (b[1], a[1])
