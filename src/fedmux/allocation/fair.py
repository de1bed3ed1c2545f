"""alpha-fair allocation across tasks: the worse a task does, the more clients it gets ([P2] Eqs. 4 and 5).

A client picks task s with probability proportional to f_s^(alpha - 1), where f_s is the task's error
(1 - accuracy; for other metrics 1 - progress) or its loss. alpha = 1 is uniform; alpha -> infinity sends
everyone to the worst task. The printed Algorithm 1 uses the accuracy, which would send clients to the best
task.
"""

from typing import Literal

import numpy as np

from fedmux.allocation.plan import Allocator, Plan, RoundState
from fedmux.allocation.random import Participation, spread, uniform_choice
from fedmux.errors import FedmuxError
from fedmux.population import Bools, Floats

Measure = Literal["error", "loss"]


def fair_shares(errors: Floats, alpha: float) -> Floats:
    """f^(alpha - 1) / sum of f^(alpha - 1) over tasks (S), computed from logarithms."""
    errors = np.asarray(errors, np.float64)
    return fair_choice(errors, alpha, np.ones((1, len(errors)), bool))[0]


def fair_choice(errors: Floats, alpha: float, available: Bools) -> Floats:
    """N x S: each client's probabilities over its own tasks; rows add up to 1, or to 0 without tasks.

    Tasks with zero error get nothing, unless a client has no others.
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
    """f_s = sum_i d_is f_is over the clients that reported (S); NaN for a task without reports."""
    losses = state.signals.losses
    assert losses is not None
    known = ~np.isnan(losses)
    weight = np.where(known, state.population.shares, 0.0)
    total = weight.sum(0)
    summed = (weight * np.where(known, losses, 0.0)).sum(0)
    return np.divide(summed, total, out=np.full(len(total), np.nan), where=total > 0)


def badness(state: RoundState, measure: Measure) -> Floats:
    """f_s of each task (S): its error or its loss; 0 for a task that no client has.

    A task whose value is unknown or not finite counts as the worst of the others, never as perfect.
    """
    here = state.population.available.any(0)
    if measure == "error":
        assert state.accuracies is not None
        found = 1 - state.accuracies
    else:
        found = global_loss(state)
        for s in np.flatnonzero(here):
            demand_positive(state.task(s), found[s])
    known = here & np.isfinite(found)
    worst = found[known].max(initial=0.0) if known.any() else 1.0
    return np.where(known, np.maximum(found, 0.0), np.where(here, worst, 0.0))


def demand_positive(task: str, losses: np.ndarray | float) -> None:
    """Reject negative losses of a task: fairness by loss compares magnitudes."""
    if np.less(losses, 0).any():
        raise FedmuxError(
            f"{task}: its loss is negative ({np.nanmin(losses):g}), but fairness by loss "
            'compares sizes; add a constant to the loss, or use a method with measure = "error"'
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
        return spread(
            state, fair_choice(badness(state, self.measure), self.alpha, available), self.participation
        )
