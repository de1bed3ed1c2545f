"""Budget-fair (proportional share) auction, [P2] section V: each task spends its own B / S.

The w cheapest users of a task win, w the largest k with k b_(k) <= beta = B / S. The paper pays beta / w,
which is not truthful: a user who narrowly lost can gain by bidding less. The threshold payment
min(beta / w, b_(w+1)) is truthful: it is the largest bid with which a winner would still win.
"""

from typing import Literal

import numpy as np

from fedmux.population import Floats
from fedmux.recruitment.award import Award, check_budget, fits, sort_bids


def budget_fair(
    bids: Floats, budget: float, *, payment: Literal["threshold", "as-published"] = "threshold"
) -> Award:
    """bids: users x tasks, NaN for no bid."""
    if payment not in ("threshold", "as-published"):
        raise ValueError(f'payment must be "threshold" or "as-published", got "{payment}"')
    check_budget(budget)
    ordered = sort_bids(bids)
    users, tasks = ordered.bids.shape
    own = budget / max(tasks, 1)
    rank = np.arange(1, users + 1)[:, None]
    winners = fits(rank * ordered.bids, own).sum(0)  # k b_(k) grows with k
    price = np.divide(own, winners, out=np.zeros(tasks), where=winners > 0)
    if payment == "threshold":
        following = np.vstack([ordered.bids, np.full(tasks, np.inf)])[winners, np.arange(tasks)]
        price = np.minimum(price, following)
    wins = rank <= winners
    price = np.maximum(price, np.where(wins, ordered.bids, 0.0).max(0, initial=0.0))  # own / w may round down
    return ordered.award(wins.astype(np.float64), np.where(wins, price, 0.0), budget)
