"""The N clients as arrays: processors, data sizes, who is eligible for which task.

Never a Python object per client: a million clients is three arrays. Symbols follow section III of [P1]
(Zhang et al.): B_i processors, n_is data points, d_is shares, S_i the tasks a client can train.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

BLOCK = 8192  # rows whose sums fit into the processor's cache


@dataclass(frozen=True, eq=False)
class Population:
    capacity: Ints  # N: processors B_i, each trains at most one task a round
    sizes: Ints  # N x S: training points n_is
    eligible: Bools  # N x S: willing or recruited

    @cached_property
    def available(self) -> Bools:
        """N x S: pairs that can be trained. A client without a processor cannot train at all."""
        return self.eligible & (self.sizes > 0) & (self.capacity > 0)[:, None]

    @cached_property
    def shares(self) -> Floats:
        """N x S: d_is = n_is / sum of n_js over the clients that have task s; columns sum to 1 (or 0)."""
        points = np.where(self.available, self.sizes, 0.0)
        total = np.ones(len(points)) @ points  # whole numbers: exact in any order
        points /= np.where(total > 0, total, 1.0)
        return points

    @cached_property
    def processors(self) -> Ints:
        """N: B_i of clients that can train something, 0 for the others."""
        return np.where(row_counts(self.available) > 0, self.capacity, 0)

    @cached_property
    def total_processors(self) -> int:
        """V: processors of all clients that can train something."""
        return int(self.processors.sum())

    @cached_property
    def active_clients(self) -> int:
        """K: clients that can train something."""
        return int(np.count_nonzero(self.processors))

    @property
    def clients(self) -> int:
        return self.sizes.shape[0]

    @property
    def tasks(self) -> int:
        return self.sizes.shape[1]


def row_sums(values: Floats) -> Floats:
    """values.sum(1), to the bit; several times as fast for a million rows of a few columns."""
    rows, columns = values.shape
    if not 1 <= columns < 8:  # from eight on NumPy adds in another order
        return np.asarray(values.sum(1))
    total = np.empty(rows)
    for start in range(0, rows, BLOCK):
        block, part = values[start : start + BLOCK], total[start : start + BLOCK]
        part[:] = block[:, 0]
        for column in range(1, columns):
            part += block[:, column]
    return total


def row_counts(values: Bools) -> Ints:
    """values.sum(1): how many of a row are true."""
    if values.shape[1] > np.iinfo(np.uint8).max:
        return np.asarray(values.sum(1))
    count = np.zeros(len(values), np.uint8)
    for column in range(values.shape[1]):
        count += values[:, column]
    return count.astype(np.int64)


def draw_availability(
    rule: float | dict[str, float], clients: int, tasks: int, rng: np.random.Generator
) -> Bools:
    """Which clients have which tasks (N x S).

    A number is the probability of each pair (a client left without a task gets one at random); a table
    `{all, all_but_one}` gives shares of the clients, as in [P1] section VII-A.
    """
    if isinstance(rule, dict):
        lacking = rng.permutation(clients)[: _count(rule.get("all_but_one", 0.0), clients)]
        have = np.ones((clients, tasks), bool)
        if tasks > 1:
            have[lacking, rng.integers(tasks, size=len(lacking))] = False
        return have
    have = rng.random((clients, tasks)) < rule
    nothing = np.flatnonzero(~have.any(1))
    have[nothing, rng.integers(tasks, size=len(nothing))] = True
    return have


def draw_capacity(rule: int | list[int] | dict[str, float], has: Bools, rng: np.random.Generator) -> Ints:
    """Processors B_i (N): one number for all, one per client, or shares `{all, half, one}` of the clients.

    The shares are [P1] section VII-A's: B_i = |S_i|, ceil(|S_i| / 2) or 1.
    """
    clients = has.shape[0]
    if isinstance(rule, int):
        return np.full(clients, rule, np.int64)
    if isinstance(rule, list):
        return np.array(rule, np.int64)
    tasks = has.sum(1)
    order = rng.permutation(clients)
    everything, half = _count(rule.get("all", 0.0), clients), _count(rule.get("half", 0.0), clients)
    capacity = np.ones(clients, np.int64)
    capacity[order[:everything]] = tasks[order[:everything]]
    halves = order[everything : everything + half]
    capacity[halves] = -(-tasks[halves] // 2)
    return capacity


def _count(share: float, clients: int) -> int:
    return int(share * clients + 0.5)
