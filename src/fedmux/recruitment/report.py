"""An auction's outcome as rows, and all mechanisms side by side over budgets."""

from typing import Any

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.importing import closest
from fedmux.population import Floats
from fedmux.randomness import Stream, generator
from fedmux.recruitment import MECHANISMS, Award

STEPS = 20  # budgets up to twice the given one


def hold(bids: Floats, budget: float, mechanism: str, seed: int) -> Award:
    """Run one auction by name; FedmuxError says what is wrong with the input."""
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise FedmuxError(f'unknown mechanism "{mechanism}"{closest(mechanism, MECHANISMS)}; known: {known}')
    return MECHANISMS[mechanism](bids, budget, generator(seed, Stream.RECRUITMENT))


def winners(award: Award, users: list[str], tasks: list[str]) -> list[dict[str, Any]]:
    """A row for each user and the task it joins, by task."""
    return [
        {
            "task": tasks[task],
            "user": users[user],
            "share": float(award.share[user, task]),
            "payment": float(award.payment[user, task]),
        }
        for task, user in zip(*np.nonzero(award.share.T > 0))
    ]


def budgets_compared(bids: Floats, budget: float, seed: int) -> list[dict[str, Any]]:
    """Every mechanism at budgets from a tenth of the given one to twice it.

    The posted price has no budget: it is the mean bid throughout.
    """
    price = float(np.nanmean(bids)) if np.isfinite(bids).any() else 0.0
    rows = []
    for name in MECHANISMS:
        for step in range(1, STEPS + 1):
            spend = budget * (2 * step / STEPS)  # exactly the given budget half way
            award = hold(bids, price if name == "posted-price" else spend, name, seed)
            rows.append(
                {
                    "mechanism": name,
                    "budget": spend,
                    "minimum": float(award.take_up.min()),
                    "difference": float(award.take_up.max() - award.take_up.min()),
                    "paid": award.paid,
                }
            )
    return rows
