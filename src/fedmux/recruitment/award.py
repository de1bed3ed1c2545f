"""An auction's outcome (who joins which task, at what price), and the checks of its input."""

from dataclasses import dataclass

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.population import Bools, Floats, Ints

# Decimal bids are not binary fractions: 0.1 + 0.2 is above 0.3, and 0.6 / 3 below 0.2. An amount fits if it
# exceeds the budget by at most this fraction. Sums of a million bids round less, and no currency is as fine.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Award:
    """Rows are users, columns tasks. A user with a fractional share joins in that fraction of the rounds."""

    share: Floats  # N x S in [0, 1]
    payment: Floats  # N x S
    budget: float | None  # None: the mechanism has none

    @property
    def take_up(self) -> Floats:
        """Users of each task, fractions included (S)."""
        return self.share.sum(0)

    @property
    def paid(self) -> float:
        return float(self.payment.sum())

    @property
    def leftover(self) -> float | None:
        return None if self.budget is None else max(0.0, self.budget - self.paid)  # see ROUNDING


@dataclass(frozen=True, eq=False)
class Sorted:
    """Each task's bids in ascending order, ties by user number; users without a bid come last, as inf."""

    bids: Floats  # N x S
    user: Ints  # N x S
    count: Ints  # S: users with a bid

    def award(self, share: Floats, payment: Floats, budget: float | None) -> Award:
        """From values in sorted order to values by user."""
        by_user = np.zeros((2, *share.shape))
        for task in range(share.shape[1]):
            winners = np.flatnonzero(share[:, task])
            users = self.user[winners, task]
            by_user[0, users, task], by_user[1, users, task] = share[winners, task], payment[winners, task]
        return Award(by_user[0], by_user[1], budget)


def sort_bids(bids: Floats) -> Sorted:
    """Check and sort; the error names user and task."""
    bids = np.asarray(bids, np.float64)
    if bids.ndim != 2:
        raise ValueError(f"bids must be users x tasks, got shape {bids.shape}")
    wrong = np.isinf(bids) | (bids < 0)
    if wrong.any():
        row, task = (int(index[0]) for index in np.nonzero(wrong))
        raise FedmuxError(
            f"the bid of user {row} for task {task} is {bids[row, task]}; "
            f"bids must be finite and at least 0, NaN means no bid"
        )
    values = np.ascontiguousarray(np.where(np.isnan(bids), np.inf, bids).T)  # sorting rows is faster
    user = np.argsort(values, axis=1, kind="stable")
    return Sorted(np.take_along_axis(values, user, axis=1).T, user.T, np.isfinite(values).sum(1))


def check_budget(budget: float) -> None:
    if not (0 <= budget < np.inf):
        raise FedmuxError(f"the budget must be finite and at least 0, got {budget}")


def fits(amounts: Floats, budget: float) -> Bools:
    """Whether each amount can be paid out of the budget, up to rounding."""
    return amounts <= budget * (1 + ROUNDING)
