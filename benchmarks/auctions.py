"""Auctions: take-up over budgets, and how often a lie pays under max-min fair and budget-fair.

    python benchmarks/auctions.py [--seeds 100]

Take-up: two tasks, 100 users, costs normal(0.2, 0.2) cut to [0, 1] and of linear density; means over seeds of
the smallest take-up and, in brackets, of the difference. Lies: every user's bid for every task in turn is
replaced by each of a grid of others; a lie pays if the payment less the true cost of the share grows.
"""

import argparse

import numpy as np

from fedmux.population import Floats
from fedmux.recruitment import MECHANISMS
from fedmux.recruitment.bids import Linear, Normal

TAKE_UP = ("budget-fair", "max-min-fair", "gmm-fair", "greedy-within-budget")
LIES = ("budget-fair", "budget-fair-as-published", "max-min-fair")


def costs(users: int, rng: np.random.Generator) -> Floats:
    return np.stack([Normal(mean=0.2, std=0.2).draw(users, rng), Linear().draw(users, rng)], axis=1)


def take_up(budget: float, seeds: int) -> str:
    cells = []
    for name in TAKE_UP:
        found = [
            MECHANISMS[name](
                costs(100, np.random.default_rng(seed)), budget, np.random.default_rng(seed)
            ).take_up
            for seed in range(seeds)
        ]
        low, apart = np.min(found, axis=1), np.ptp(found, axis=1)
        error = low.std(ddof=1) / np.sqrt(seeds)
        cells.append(f"{name} {low.mean():.1f} +- {error:.1f} ({apart.mean():.1f})")
    return ", ".join(cells)


def lies(name: str, users: int, budget: float, auctions: int) -> str:
    """Share of users and tasks for which some lie pays, the mean and the largest gain."""
    auction = MECHANISMS[name]
    gains = []
    for seed in range(auctions):
        rng = np.random.default_rng(seed)
        true = costs(users if users > 10 else int(rng.integers(2, users + 1)), rng)
        honest = auction(true, budget, rng)
        welfare = honest.payment - honest.share * true
        for user, task in np.ndindex(true.shape):
            best = 0.0
            for factor in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.01, 1.1, 1.3, 1.6, 2.0, 3.0):
                bids = true.copy()
                bids[user, task] *= factor
                award = auction(bids, budget, rng)
                gain = award.payment[user, task] - award.share[user, task] * true[user, task]
                best = max(best, gain - welfare[user, task])
            gains.append(best)
    pays = np.array(gains)[np.array(gains) > 1e-9]
    mean = f", {pays.mean():.3f} on average and at most {pays.max():.3f}" if len(pays) else ""
    of = f"{len(pays) / len(gains):.0%} of {len(gains)}"
    return f"{name}, {users} users, B = {budget:g}: a lie pays for {of}{mean}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    for budget in (10, 29, 60):
        print(f"B = {budget}: {take_up(budget, seeds)}")
    for name in LIES:
        print(lies(name, 8, 1.0, max(1, seeds)))
        print(lies(name, 100, 29.0, max(1, seeds // 50)))


if __name__ == "__main__":
    main()
