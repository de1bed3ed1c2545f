"""alpha-fair allocation across tasks: the worse a task does, the more clients it gets ([P2] Eqs. 4 and 5).

A client picks task s with probability proportional to f_s^(alpha - 1), where f_s is the task's error rate
(1 - accuracy) or its loss. alpha = 1 is uniform; alpha -> infinity sends everybody to the worst task. The
printed Algorithm 1 says to use the accuracy: that would send clients to the best task.
"""

from typing import Literal

import numpy as np

from fedmux.allocation.plan import Allocator, Plan, RoundState
from fedmux.allocation.random import Participation, spread, uniform_choice
from fedmux.population import Bools, Floats

Measure = Literal["error", "loss"]


def fair_shares(errors: Floats, alpha: float) -> Floats:
    """f^(alpha - 1) / sum of f^(alpha - 1) over tasks (S), computed from logarithms."""
    errors = np.asarray(errors, np.float64)
    return fair_choice(errors, alpha, np.ones((1, len(errors)), bool))[0]


def fair_choice(errors: Floats, alpha: float, available: Bools) -> Floats:
    """N x S: each client's probabilities over its own tasks; rows add up to 1, or to 0 without a task.

    Tasks without error get nothing, unless a client has no other.
    """
    errors = np.asarray(errors, np.float64)
    if not alpha >= 1:
        raise ValueError(f"alpha must be at least 1, got {alpha}")
    if not ((errors >= 0) & np.isfinite(errors)).all():
        raise ValueError(f"errors must be finite and at least 0, got {errors.tolist()}")
    if alpha == 1:
        return uniform_choice(available)
    with np.errstate(divide="ignore"):
        logs = np.where(available, np.log(errors), -np.inf)
    best = logs.max(1, keepdims=True, initial=-np.inf)
    some = np.isfinite(best[:, 0])  # rows with a task that has an error
    gap = logs[some] - best[some]
    weights = np.zeros(available.shape)
    weights[some] = gap == 0 if np.isinf(alpha) else np.exp((alpha - 1) * gap)
    weights[~some] = available[~some]
    total = weights.sum(1, keepdims=True)
    return np.divide(weights, total, out=weights, where=total > 0)


def global_loss(state: RoundState) -> Floats:
    """f_s = sum_i d_is f_is over the clients that reported (S)."""
    losses = state.signals.losses
    assert losses is not None
    weight = np.where(np.isnan(losses), 0.0, state.population.shares)
    total = weight.sum(0)
    return np.divide(
        (weight * np.nan_to_num(losses)).sum(0), total, out=np.zeros(len(total)), where=total > 0
    )


class FairAllocator(Allocator):
    """FedFairMMFL: active clients pick tasks by alpha-fairness; uniformly in the first round."""

    def __init__(self, alpha: float, measure: Measure, participation: Participation) -> None:
        self.alpha, self.measure, self.participation = alpha, measure, participation
        self.needs = frozenset({"accuracy" if measure == "error" else "loss"})

    def plan(self, state: RoundState) -> Plan:
        available = state.population.available
        if state.round == 0:
            return spread(state, uniform_choice(available), self.participation)
        if self.measure == "error":
            assert state.accuracies is not None
            errors = np.maximum(1 - state.accuracies, 0.0)
        else:
            errors = np.abs(global_loss(state))
        return spread(state, fair_choice(errors, self.alpha, available), self.participation)
