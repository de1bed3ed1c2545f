"""Clustered sampling (Fraboni, Vidal, Kameni and Lorenzi 2021, Algorithm 1) as a way to draw.

For each task the clients lie on a line, those with the most expected jobs first, each as long as its expected
number of jobs. Every piece of length 1 is a cluster, from which one client is drawn in proportion to its part
of it; a piece that is left over gives one with probability its length. So large clients meet in clusters of
their own, and everybody trains as often as expected. The paper draws from each cluster by itself; here a
processor may be in clusters of several tasks, or in two of one, and is drawn from at most one of them.
"""

import numpy as np

from fedmux.allocation.draws import DONE, rounded
from fedmux.population import Floats, Ints


def clustered(probability: Floats, processors: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(client, task) of each busy processor, one for each cluster. Takes O(processors x tasks) steps of Python."""
    owner = np.repeat(np.arange(len(processors)), processors)
    value: dict[tuple[int, int], float] = {}
    task_of: list[int] = []  # of each cluster
    for task in range(probability.shape[1]):
        row, cluster, part = _pieces(owner, probability[:, task], processors)
        edges = zip(row.tolist(), (len(task_of) + cluster).tolist(), strict=True)
        value.update(zip(edges, part.tolist(), strict=True))
        task_of += [task] * (int(cluster.max(initial=-1)) + 1)
    rows, clusters = rounded(value, rng)
    return owner[rows], np.array(task_of, np.int64)[clusters]


def _pieces(owner: Ints, probability: Floats, processors: Ints) -> tuple[Ints, Ints, Floats]:
    """The clusters of one task: processor, cluster and the processor's part of it, for each that has one."""
    first = np.argsort(-(probability * processors), kind="stable")
    place = np.argsort(first, kind="stable")
    row = np.argsort(place[owner], kind="stable")  # a client's processors lie side by side
    length = probability[owner[row]]
    end = np.cumsum(length)
    start = end - length
    cluster = np.floor(start + DONE).astype(np.int64)
    inside = np.minimum(end, cluster + 1.0) - start
    row, cluster = np.tile(row, 2), np.concatenate([cluster, cluster + 1])
    part = np.concatenate([inside, length - inside])  # a processor reaches into two clusters at most
    some = part > DONE
    return row[some], cluster[some], part[some]
