"""Simple mechanisms to compare auctions with ([P2] section VI): posted price, greedy, random."""

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.population import Floats
from fedmux.recruitment.award import Award, check_budget, fits, sort_bids


def posted_price(costs: Floats, threshold: float) -> Award:
    """Users whose cost is below the threshold join and are paid the threshold; there is no budget.

    Strictly below, as in [P2]: nothing is added or divided, so there is no rounding to allow for.
    """
    if not (0 <= threshold < np.inf):
        raise FedmuxError(f"the threshold must be finite and at least 0, got {threshold}")
    ordered = sort_bids(costs)
    joins = (ordered.bids < threshold).astype(np.float64)
    return ordered.award(joins, joins * threshold, None)


def greedy_within_budget(bids: Floats, budget: float) -> Award:
    """Each task takes its cheapest users while their bids fit into B / S, and pays the bids."""
    check_budget(budget)
    ordered = sort_bids(bids)
    own = budget / max(ordered.bids.shape[1], 1)
    wins = fits(np.cumsum(ordered.bids, axis=0), own)
    return ordered.award(wins.astype(np.float64), np.where(wins, ordered.bids, 0.0), budget)


def random_within_budget(bids: Floats, budget: float, rng: np.random.Generator) -> Award:
    """Each task takes users in random order until the first bid that does not fit into B / S."""
    check_budget(budget)
    sort_bids(bids)  # for its checks
    bids = np.asarray(bids, np.float64)
    tasks = bids.shape[1]
    share = np.zeros(bids.shape)
    for task in range(tasks):
        order = rng.permutation(np.flatnonzero(~np.isnan(bids[:, task])))
        share[order[fits(np.cumsum(bids[order, task]), budget / tasks)], task] = 1.0
    return Award(share, np.where(share > 0, bids, 0.0), budget)
