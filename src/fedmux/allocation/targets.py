"""How many jobs each task can get: fair targets lowered to what the processors can serve.

Targets m are attainable iff for every set T of tasks sum_{s in T} m_s <= cap(T), the processors of clients
that have some task of T (max-flow, min-cut). Where a client of T also has a task outside T, reaching cap(T)
would leave that task with probability 0, so a little slack is kept. If a job of task s has load u_s, u_s m_s
takes the place of m_s.
"""

import numpy as np

from fedmux.allocation.flow_targets import fill_by_flow
from fedmux.allocation.optimal import checked_units
from fedmux.population import Bools, Floats, Ints

MOST_LISTED = 16  # up to this many tasks all sets are listed; beyond that max-flow finds those that matter
SLACK = 0.01
NEGLIGIBLE = 1e-4  # a task with a weight below this is not trained this round


def feasible_targets(
    weights: Floats, jobs: float, capacity: Ints, available: Bools, *, units: Floats | None = None
) -> Floats:
    """m_s (S) in proportion to `weights` (which add up to 1) as far as possible, `jobs` in total.

    Weighted max-min filling: all targets grow together, m_s = rho w_s; a set of tasks that reaches what its
    processors can serve stops, and the others continue. Feasible ratios are kept exactly. `units` (S): load
    of a job on a processor, default 1.
    """
    weights = np.asarray(weights, np.float64)
    if not ((weights >= 0) & np.isfinite(weights)).all():
        raise ValueError(f"weights must be finite and at least 0, got {weights.tolist()}")
    if not jobs >= 0:
        raise ValueError(f"jobs must be at least 0, got {jobs}")
    able = available & (capacity > 0)[:, None]
    wanted = np.flatnonzero((weights >= NEGLIGIBLE) & able.any(0))
    targets = np.zeros(len(weights))
    if len(wanted):
        share = weights[wanted] / weights[wanted].sum()
        sizes = checked_units(units, len(weights))[wanted]
        fill = _fill if len(wanted) <= MOST_LISTED else fill_by_flow
        targets[wanted] = fill(share, jobs, capacity, able[:, wanted], sizes, SLACK)
    return targets


def _fill(weights: Floats, jobs: float, capacity: Ints, able: Bools, units: Floats, slack: float) -> Floats:
    tasks = len(weights)
    members = (np.arange(1 << tasks)[:, None] >> np.arange(tasks)) & 1  # 2^S x S
    limit = _limits(capacity, able, slack)
    targets = np.zeros(tasks)
    growing = np.ones(tasks)
    while growing.any():
        pace = members @ (units * weights * growing)
        room = limit - members @ (units * targets)
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.where(pace > 0, np.maximum(room, 0.0) / pace, np.inf)
        left = (jobs - targets.sum()) / float(weights @ growing)
        step = min(left, float(until.min()))
        targets = targets + step * weights * growing
        if step >= left:
            break
        for tight in np.flatnonzero(until <= step * (1 + 1e-12)):
            growing = growing * (1 - members[tight])
    return targets


def _limits(capacity: Ints, able: Bools, slack: float) -> Floats:
    """For every set of tasks (2^S): what its clients can serve, less slack if they have other tasks too."""
    tasks = able.shape[1]
    pattern = able @ (1 << np.arange(tasks))  # the set of tasks of each client
    inside = np.bincount(pattern, capacity, 1 << tasks)
    for bit in range(tasks):  # sums over subsets, one task at a time
        pairs = inside.reshape(-1, 2, 1 << bit)
        pairs[:, 1] += pairs[:, 0]
    total = inside[-1]
    served = total - inside[::-1]  # clients with a task in T: all but those whose tasks lie outside T
    # A set is closed if its clients have no other tasks.
    closed = served == inside - inside[0]  # sums of whole numbers are exact
    return np.where(closed, served, (1 - slack) * served)
