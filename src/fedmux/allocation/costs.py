"""Optimal probabilities when tasks differ in cost ([P1] footnotes 2 and 4: a weighted budget).

    minimise  sum_i B_i sum_s U_is^2 / p_is    subject to  sum_s p_is <= 1,  sum_i B_i sum_s c_s p_is <= m

KKT: p_is = U_is / sqrt(lambda c_s + mu_i). One unknown lambda for all; given it, each client's mu_i is 0 or
the root that makes its probabilities add up to 1. The budget is an upper bound: forcing it to be spent can
only do harm. With equal costs this is `optimal_probabilities`.
"""

import numpy as np
from scipy.optimize import brentq

from fedmux.allocation.optimal import checked
from fedmux.population import Bools, Floats, Ints


def cost_probabilities(
    scores: Floats, capacity: Ints, budget: float, costs: Floats, *, available: Bools | None = None
) -> Floats:
    """p (N x S) for scores U > 0 on available pairs, processors B (N), a budget and c > 0 (S)."""
    scores, capacity, available = checked(scores, capacity, available)
    costs = np.asarray(costs, np.float64)
    if costs.shape != scores.shape[1:] or not ((costs > 0) & np.isfinite(costs)).all():
        raise ValueError(f"costs must be one positive number for each task, got {costs.tolist()}")
    if not budget >= 0:
        raise ValueError(f"the budget must be at least 0, got {budget}")
    scores = np.where(available & (capacity > 0)[:, None], scores, 0.0)
    probability = np.zeros(scores.shape)
    rows = scores.any(1)
    if budget == 0 or not rows.any():
        return probability
    scores, processors = scores[rows] / scores.max(), capacity[rows]

    def spend(p: Floats) -> float:
        return float((processors @ p) @ costs)

    everything = scores / scores.sum(1, keepdims=True)  # lambda = 0
    if spend(everything) <= budget:
        probability[rows] = everything
        return probability
    # Exact while nobody is saturated, and never below the solution: saturation only lowers the spending.
    upper = np.log((processors @ (scores * np.sqrt(costs))).sum() / budget) * 2

    def excess(log_price: float) -> float:
        return np.log(spend(fill_rows(scores, np.exp(log_price) * costs)) / budget)

    if excess(upper) < -1e-13:
        lower = upper
        while excess(lower) < 0:
            lower -= 4.0
        upper = brentq(excess, lower, upper, xtol=1e-14, rtol=1e-15)
    probability[rows] = fill_rows(scores, np.exp(upper) * costs)
    return probability


def fill_rows(scores: Floats, prices: Floats) -> Floats:
    """p_is = U_is / sqrt(price_s + mu_i), with the smallest mu_i >= 0 for which a row adds up to at most 1.

    With h(mu) the row's sum, r = h^-2 is a concave increasing function of mu (it is of CES form), so Newton
    on r = 1 from a point below the root climbs to it without a safeguard, in five to eight steps.
    """
    # U / sqrt(mu + price) <= 1 needs mu >= U^2 - price for every entry: a point below the root.
    mu = np.maximum(0.0, (scores**2 - prices).max(1))
    full = np.flatnonzero((scores / np.sqrt(prices)).sum(1) > 1)
    for _ in range(100):
        if not len(full):
            break
        level = prices + mu[full, None]
        part = scores[full] / np.sqrt(level)
        total = part.sum(1)
        step = total * (total**2 - 1) / (part / level).sum(1)
        mu[full] += np.maximum(step, 0.0)
        full = full[step > 1e-15 * (mu[full] + prices.min())]
    unsaturated = (scores / np.sqrt(prices)).sum(1) <= 1
    mu[unsaturated] = 0.0
    probability = scores / np.sqrt(prices + mu[:, None])
    return probability / np.maximum(1.0, probability.sum(1, keepdims=True))
