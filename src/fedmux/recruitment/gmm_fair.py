"""GMMFair, [P2] Eq. 36: the largest minimum take-up if bids are truthful; pays the bids.

In turn t the t-th cheapest user of every task joins if the budget covers all of them. Optimal, since any
solution with minimum take-up t costs at least the t cheapest of each task. Not truthful: it is the bound
that truthful mechanisms are measured against.
"""

import numpy as np

from fedmux.population import Floats
from fedmux.recruitment.award import Award, check_budget, fits, sort_bids


def gmm_fair(bids: Floats, budget: float) -> Award:
    """bids: users x tasks, NaN for no bid. A task without a t-th bid drops out; the others continue."""
    check_budget(budget)
    ordered = sort_bids(bids)
    cost = np.where(np.isfinite(ordered.bids), ordered.bids, 0.0)
    turns = int(fits(np.cumsum(cost.sum(1)), budget).sum())
    rank = np.arange(1, len(cost) + 1)[:, None]
    wins = (rank <= turns) & np.isfinite(ordered.bids)
    return ordered.award(wins.astype(np.float64), np.where(wins, cost, 0.0), budget)
