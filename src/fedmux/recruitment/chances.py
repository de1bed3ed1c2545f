"""How likely users join and tasks stay empty before bids are known: [P2] section V-C and Corollary 10.

In turn t every task offers its t-th cheapest user a price. A user whose cost is drawn from a law joins if the
cost is at most that price, so the probability is the law's distribution function at the price. The mechanisms
differ in the price; the costs of the other users are given.
"""

import math
from typing import Protocol


class Costs(Protocol):
    """The distribution of a user's cost, such as a law of `bids.py`."""

    def cdf(self, cost: float) -> float:
        """The probability of a cost of at most `cost`."""


def joins_at_posted_price(costs: Costs, price: float) -> float:
    return costs.cdf(price)


def joins_budget_fair(costs: Costs, budget: float, tasks: int, turn: int) -> float:
    """The t users of a task are paid equally out of B / S: the price is B / (S t). (Printed: B / (s t).)"""
    return costs.cdf(budget / (tasks * turn))


def joins_gmm_fair(costs: Costs, remaining: float, others: float) -> float:
    """`remaining`: what earlier turns left of B; `others`: total of the other tasks' bids in this turn."""
    return costs.cdf(remaining - others)


def joins_max_min_fair(
    costs: Costs, turn: int, own: float, surplus: float = 0.0, lacking: float = 0.0, short: int = 1
) -> float:
    """The expected share of the user, who may get a fraction of a place in the last turn.

    `own`: the task's budget; `surplus`: what other tasks can spare; `lacking`: what the other tasks that fall
    short lack; `short`: how many tasks fall short, this one included. What the others leave of the surplus
    adds to the task's budget, and the price is that budget over t. A user who asks for more gets the fraction
    x = surplus / (short cost), at most 1.
    """
    price = (own + max(0.0, surplus - lacking)) / turn
    offer = surplus / short
    whole = max(price, offer)  # up to this cost the share is 1
    if offer <= 0:
        return costs.cdf(whole)
    from scipy.integrate import quad

    # E[offer / cost; cost > whole] by parts; with u = 1 / cost the range is finite and needs no density.
    tail = 1.0 - costs.cdf(whole)
    later, _ = quad(lambda u: 1.0 - costs.cdf(1.0 / u), 0.0, 1.0 / whole, limit=200)
    return costs.cdf(whole) + offer * (tail / whole - later)


def left_empty(budget: float, tasks: int, rate: float) -> tuple[float, float]:
    """Probability that some task cannot pay its cheapest user: with a shared budget, and with B / S each.

    The tasks' cheapest bids are independent and exponential with this rate: K times the rate of single bids,
    if K users bid. The first is P[sum >= B] (max-min fair, GMMFair), the second P[max >= B / S]
    (budget-fair, greedy). The first event implies the second, so it is never more likely; the example in the
    paper says the opposite.
    """
    from scipy.special import gammaincc

    mean = budget * rate  # y in the paper's example
    shared = float(gammaincc(tasks, mean))  # a sum of S exponentials is Erlang
    none = math.exp(-mean / tasks)
    apart = -math.expm1(tasks * math.log1p(-none)) if none < 1 else 1.0
    return shared, apart
