"""Optimal probabilities for tasks with different costs ([P1] footnotes 2 and 4).

    minimise  sum_i B_i sum_s U_is^2 / p_is    subject to  sum_s u_s p_is <= 1,  sum_i B_i sum_s c_s p_is <= m

A job of task s costs c_s of the server's budget and takes u_s units of a client's processor. KKT:
p_is = U_is / sqrt(lambda c_s + mu_i u_s). One unknown lambda for all; given it, each client's mu_i is 0 or
the root that makes its load 1. The budget is an upper bound: forcing all of it to be spent can only hurt. In
terms of the load u_s p_is all units are 1, with scores U_is sqrt(u_s) and costs c_s / u_s; if costs are equal
too, this is `optimal_probabilities`.
"""

import numpy as np
from scipy.optimize import brentq

from fedmux.allocation.optimal import checked, checked_units
from fedmux.population import Bools, Floats, Ints


def cost_probabilities(
    scores: Floats,
    capacity: Ints,
    budget: float,
    costs: Floats,
    *,
    units: Floats | None = None,
    available: Bools | None = None,
) -> Floats:
    """p (N x S) for scores U > 0 on available pairs, processors B (N), a budget, c > 0 and u >= 1 (S)."""
    scores, capacity, available = checked(scores, capacity, available)
    units = checked_units(units, scores.shape[1])
    costs = np.asarray(costs, np.float64)
    if costs.shape != scores.shape[1:] or not ((costs > 0) & np.isfinite(costs)).all():
        raise ValueError(f"costs must be one positive number for each task, got {costs.tolist()}")
    if not budget >= 0:
        raise ValueError(f"the budget must be at least 0, got {budget}")
    scores, costs = scores * np.sqrt(units), costs / units  # from here on p is the load
    scores = np.where(available & (capacity > 0)[:, None], scores, 0.0)
    probability = np.zeros(scores.shape)
    rows = scores.any(1)
    if budget == 0 or not rows.any():
        return probability
    scores, processors = scores[rows] / scores.max(), capacity[rows]

    def spend(p: Floats) -> float:
        return float((processors @ p) @ costs)

    everything = scores / scores.sum(1, keepdims=True)  # lambda = 0
    most = spend(everything)
    if most <= budget * (1 + 1e-12):  # a budget below that only by rounding has no lambda to find
        probability[rows] = everything * min(1.0, budget / most) / units
        return probability
    # Exact if nobody is saturated, and never below the solution: saturation only lowers the spending.
    upper = np.log((processors @ (scores * np.sqrt(costs))).sum() / budget) * 2

    def excess(log_price: float) -> float:
        return np.log(spend(fill_rows(scores, np.exp(log_price) * costs)[0]) / budget)

    if excess(upper) < -1e-13:
        lower = upper
        while excess(lower) < 0:
            lower -= 4.0
        upper = brentq(excess, lower, upper, xtol=1e-14, rtol=1e-15)
    probability[rows] = fill_rows(scores, np.exp(upper) * costs)[0] / units
    return probability


def fill_rows(scores: Floats, prices: Floats) -> tuple[Floats, Floats]:
    """p_is = U_is / sqrt(price_s + mu_i) with the smallest mu_i >= 0 for which a row adds up to at most 1.

    Prices may be negative. Returns p and price_s + mu_i (N x S). With h(v) a row's sum at the level v of its
    lowest price, h^-2 is a concave increasing function of v (of CES form), so Newton on h^-2 = 1 from a point
    below the root climbs to it without safeguards, in five to eight steps.
    """
    has = scores > 0
    lowest = np.where(has, prices, np.inf).min(1)
    above = np.where(has, prices - lowest[:, None], np.inf)  # relative to the lowest price, to lose no digits
    with np.errstate(invalid="ignore", divide="ignore"):
        free = (lowest > 0) & ((scores / np.sqrt(above + lowest[:, None])).sum(1) <= 1)
    # U / sqrt(level) <= 1 needs a level of at least U^2 for every entry, which gives a point below the root.
    level = np.where(free, lowest, np.maximum(lowest, np.where(has, scores**2 - above, -np.inf).max(1)))
    full = np.flatnonzero(~free)
    for _ in range(100):
        if not len(full):
            break
        under = above[full] + level[full, None]
        part = scores[full] / np.sqrt(under)
        total = part.sum(1)
        step = total * (total**2 - 1) / (part / under).sum(1)
        level[full] += np.maximum(step, 0.0)
        full = full[step > 4e-16 * level[full]]
    levels = above + level[:, None]
    p = scores / np.sqrt(levels)
    total = p.sum(1, keepdims=True)
    # Make saturated rows add up to 1 exactly.
    return np.where(free[:, None], p, p / np.where(total > 0, total, 1.0)), np.where(has, levels, 1.0)
