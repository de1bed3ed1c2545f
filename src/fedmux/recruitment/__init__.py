"""Auctions before training: bids in, eligibility and payments out. NumPy only."""

from collections.abc import Callable

import numpy as np

from fedmux.population import Floats
from fedmux.recruitment.award import Award
from fedmux.recruitment.budget_fair import budget_fair
from fedmux.recruitment.gmm_fair import gmm_fair
from fedmux.recruitment.max_min_fair import max_min_fair
from fedmux.recruitment.others import greedy_within_budget, posted_price, random_within_budget

__all__ = [
    "MECHANISMS",
    "Award",
    "budget_fair",
    "gmm_fair",
    "greedy_within_budget",
    "max_min_fair",
    "posted_price",
    "random_within_budget",
]

# By name: bids and a budget (for the posted price: the threshold) to an award.
MECHANISMS: dict[str, Callable[[Floats, float, np.random.Generator], Award]] = {
    "max-min-fair": lambda bids, budget, rng: max_min_fair(bids, budget),
    "budget-fair": lambda bids, budget, rng: budget_fair(bids, budget),
    "budget-fair-as-published": lambda bids, budget, rng: budget_fair(bids, budget, payment="as-published"),
    "gmm-fair": lambda bids, budget, rng: gmm_fair(bids, budget),
    "greedy-within-budget": lambda bids, budget, rng: greedy_within_budget(bids, budget),
    "random-within-budget": random_within_budget,
    "posted-price": lambda bids, budget, rng: posted_price(bids, budget),
}
