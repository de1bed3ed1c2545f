"""MMFL max-min fair auction, [P2] Algorithm 3, repaired: tasks keep step, and rich ones help poor ones.

Every task starts with B / S and pays all its users the same price. In turn t each task needs t b_(t); tasks
that fall short are topped up from the others' surplus, richest first. When the surplus no longer suffices, it
is divided among the tasks that fall short, buys each a fraction of a user, and the auction ends.

Unlike in the printed algorithm, prices follow the task's own budget, earlier winners are re-priced whenever
it changes, and donors' budgets also shrink by what they give in the fractional turn. Read literally, the
printed algorithm spends up to 1.5 B.
"""

import numpy as np

from fedmux.population import Floats
from fedmux.recruitment.award import ROUNDING, Award, Sorted, check_budget, fits, sort_bids


def max_min_fair(bids: Floats, budget: float, *, use_own_budget: bool = False) -> Award:
    """bids: users x tasks, NaN for no bid.

    `use_own_budget`: a task that cannot afford its first user may put its own B / S towards a fraction; the
    paper leaves it unspent.
    """
    check_budget(budget)
    ordered = sort_bids(bids)
    users, tasks = ordered.bids.shape
    purse, count, fraction, extra = _turns(ordered, budget, use_own_budget)
    rank = np.arange(1, users + 1)[:, None]
    share = (rank <= count).astype(np.float64)
    price = np.divide(purse, count, out=np.zeros(tasks), where=count > 0)
    last = np.where(share > 0, ordered.bids, 0.0).max(0, initial=0.0)
    payment = share * np.maximum(price, last)  # the price may round down to below what the last one asks
    for task in np.flatnonzero(fraction > 0):
        share[count[task], task] = fraction[task]
        payment[count[task], task] = extra[task]
    return ordered.award(share, payment, budget)


def _turns(ordered: Sorted, budget: float, use_own: bool) -> tuple[Floats, np.ndarray, Floats, Floats]:
    """Each task's final budget, its full users, and the fraction and payment of its last user (S each)."""
    users, tasks = ordered.bids.shape
    rank = np.arange(1, users + 1)[:, None]
    need = np.where(
        np.isfinite(ordered.bids), rank * np.where(np.isfinite(ordered.bids), ordered.bids, 0.0), 0.0
    )
    need = np.maximum.accumulate(need, axis=0)  # an exhausted task keeps its last need
    fraction, extra = np.zeros(tasks), np.zeros(tasks)
    last = int(ordered.count.max(initial=0))
    # As long as no task falls short, nothing happens; all needs fit into B for exactly the full turns.
    first = int(fits(need[:last], budget / max(tasks, 1)).all(1).sum())
    full = int(fits(need[:last].sum(1), budget).sum())
    purse = [budget / max(tasks, 1)] * tasks
    for row in need[first:full].tolist():
        short = sum(n - p for n, p in zip(row, purse) if n > p)
        if short > 0:
            purse = _give(row, purse, short)
    count = np.minimum(full, ordered.count)
    if full < last:
        row = need[full].tolist()
        nothing = (budget * (1 + ROUNDING) - sum(purse)) / tasks  # differences up to this are rounding
        bad = [s for s in range(tasks) if full < ordered.count[s] and row[s] > purse[s] + nothing]
        surplus = sum(p - n for n, p in zip(row, purse) if n <= p)
        for s in range(tasks):
            if full < ordered.count[s] and s not in bad:
                count[s] = full + 1
        for s in bad:
            bid = ordered.bids[full, s]
            offer = surplus / len(bad) + (purse[s] if use_own and full == 0 else 0.0)
            if offer > nothing:
                fraction[s] = 1.0 if bid <= offer + nothing else offer / bid
                extra[s] = fraction[s] * bid
        given = sum(max(0.0, extra[s] - (purse[s] if use_own and full == 0 else 0.0)) for s in bad)
        kept = [purse[s] if s in bad else row[s] for s in range(tasks)]
        purse = _give(kept, purse, given)
    return np.array(purse), count, fraction, extra


def _give(need: list[float], purse: list[float], amount: float) -> list[float]:
    """Raise budgets below their need to it; take `amount` from the others' surplus, richest first."""
    surplus = sorted((p - n for n, p in zip(need, purse) if p > n), reverse=True)
    level, taken = 0.0, 0.0
    for rank, _ in enumerate(surplus, 1):
        taken += surplus[rank - 1]
        level = (taken - amount) / rank  # what is left to each if the `rank` richest give
        if rank == len(surplus) or level >= surplus[rank]:
            break
    level = max(level, 0.0)
    return [n + min(p - n, level) if p > n else max(n, p) for n, p in zip(need, purse)]
