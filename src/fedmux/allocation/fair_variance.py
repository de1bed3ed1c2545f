"""Least variance with a given expected number of jobs for each task (MMFL-FairVR, [P1] Eq. 23).

    minimise  sum_i B_i sum_s U_is^2 / p_is   subject to  sum_s p_is <= 1,  sum_i B_i p_is = m_s for each s

KKT: p_is = U_is / sqrt(lambda_s + mu_i), mu_i >= 0 and 0 unless client i is saturated, lambda_s of either
sign. The dual has S unknowns: for given lambda every row is solved exactly (`fill_rows`), and lambda is
found by damped Newton steps on the concave dual, whose gradient is sum_i B_i p_is - m_s.
"""

from typing import Any

import numpy as np

from fedmux.allocation.costs import fill_rows
from fedmux.allocation.fair import Measure, fair_shares, global_loss
from fedmux.allocation.optimal import checked
from fedmux.allocation.plan import Allocator, Draws, Probabilities, RoundState
from fedmux.allocation.targets import feasible_targets
from fedmux.population import Bools, Floats, Ints

SMALLEST_SCORE = 1e-5  # of the largest score: beyond this range the solver's digits run out


def fair_probabilities(
    scores: Floats, capacity: Ints, targets: Floats, *, available: Bools | None = None
) -> Floats:
    """p (N x S) for scores U > 0 on available pairs, processors B (N) and targets m_s (S).

    A task with target 0 is left out. Targets beyond what the processors can serve raise ValueError:
    `feasible_targets` lowers them.
    """
    scores, capacity, available = checked(scores, capacity, available)
    targets = np.asarray(targets, np.float64)
    if targets.shape != scores.shape[1:] or not ((targets >= 0) & np.isfinite(targets)).all():
        raise ValueError(f"targets must be one number of at least 0 for each task, got {targets.tolist()}")
    probability = np.zeros(scores.shape)
    tasks = np.flatnonzero(targets > 0)
    useful = available[:, tasks] & (capacity > 0)[:, None]
    rows = np.flatnonzero(useful.any(1))
    if not len(tasks):
        return probability
    u = np.where(useful, scores[:, tasks], 0.0)[rows]
    if (useful[rows] & (u <= 0)).any():
        client, task = (int(index[0]) for index in np.nonzero(useful[rows] & (u <= 0)))
        raise ValueError(
            f"the score of client {rows[client]} for task {tasks[task]} must be above 0; add a floor"
        )
    missing = tasks[~useful.any(0)]
    if len(missing):
        raise ValueError(f"task {missing[0]} has a target but no client that can train it")
    solved = _Dual(u / u.max(), capacity[rows].astype(np.float64), targets[tasks]).solve()
    probability[np.ix_(rows, tasks)] = solved
    return probability


class _Dual:
    def __init__(self, scores: Floats, capacity: Floats, targets: Floats) -> None:
        self.u, self.b, self.m = scores, capacity, targets

    def solve(self) -> Floats:
        # Exact if nobody is saturated, and an upper bound of the solution otherwise.
        price = (self.b @ self.u / self.m) ** 2
        p, level = fill_rows(self.u, price)
        best, worst, stalled = p, self._worst(p), 0
        for _ in range(200):
            if worst < 1e-12 or (worst < 1e-9 and stalled > 3):  # the last digits cannot always be had
                break
            served = self.b @ p
            hessian, scale = self._hessian(p, level)
            # Newton on (served / m)^-2 = 1, exact in one step while nobody is saturated; then the plain one.
            aims = (self.m * ((served / self.m) ** 3 - served / self.m) / 2, served - self.m)
            steps = [np.linalg.solve(hessian, aim / scale) / scale for aim in aims]
            step = next((step for step in steps if step @ (served - self.m) > 0), steps[-1])
            price, p, level = self._search(price, step, p)
            stalled += 1
            if self._worst(p) < worst:
                best, worst, stalled = p, self._worst(p), 0
        if worst > 1e-7:
            raise ValueError(
                f"the targets cannot be met (off by {worst:.2%}): they ask for {self.m.sum():g} jobs of "
                f"{self.b.sum():g} processors; lower them with feasible_targets"
            )
        return best

    def _search(self, price: Floats, step: Floats, p: Floats) -> tuple[Floats, Floats, Floats]:
        """Along a step until the slope of the dual has halved: it is concave, so the slope only falls.

        Beyond the top the dual must have grown as well: steps that fall back could go round in a circle.
        """
        start, slope = self._value(price, p), float(step @ (self.b @ p - self.m))
        low, high, t = 0.0, np.inf, 1.0
        for _ in range(60):
            p, level = fill_rows(self.u, price + t * step)
            here = float((self.b @ p - self.m) @ step)
            if abs(here) <= 0.5 * slope and (here >= 0 or self._value(price + t * step, p) >= start):
                break
            if here > 0:
                low = t
            else:
                high = t
            t = 4 * t if np.isinf(high) else t / 8 if low == 0 else (low + high) / 2
        return price + t * step, p, level

    def _value(self, price: Floats, p: Floats) -> float:
        """Of the dual: sum_i B_i sum_s U_is^2 / p_is + price_s (sum_i B_i p_is - m_s)."""
        cost = np.divide(self.u**2, p, out=np.zeros(p.shape), where=self.u > 0)
        return float(self.b @ cost.sum(1) + price @ (self.b @ p - self.m))

    def _worst(self, p: Floats) -> float:
        """The largest relative distance from a target."""
        return float(np.abs(self.b @ p / self.m - 1).max())

    def _hessian(self, p: Floats, level: Floats) -> tuple[Floats, Floats]:
        """Minus the derivative of the jobs served by the prices, scaled to a diagonal of at most 1.

        A Laplacian (saturated clients shift jobs between tasks) plus a diagonal (the others).
        """
        weight = p / (2 * level)
        full = p.sum(1) > 1 - 1e-12
        share = np.where(full, self.b / weight.sum(1), 0.0)
        diagonal = self.b @ weight
        scale = np.sqrt(diagonal)
        hessian = np.diag(diagonal) - (weight * share[:, None]).T @ weight
        return hessian / np.outer(scale, scale) + 1e-14 * np.eye(len(scale)), scale


class FairVarianceAllocator(Allocator):
    """FairVR: LVR's scores, and alpha-fair targets lowered to what the processors can serve."""

    def __init__(self, alpha: float, measure: Measure, floor: float, draws: Draws) -> None:
        self.alpha, self.measure, self.floor, self.draws = alpha, measure, floor, draws
        self.needs = frozenset({"loss", "accuracy"} if measure == "error" else {"loss"})
        self.wanted = self.targets = np.zeros(0)

    def plan(self, state: RoundState) -> Probabilities:
        people = state.population
        available = people.available
        losses = state.signals.losses
        assert losses is not None
        scores = people.shares / np.maximum(people.capacity, 1)[:, None] * np.abs(np.nan_to_num(losses))
        if self.measure == "error":
            assert state.accuracies is not None
            errors = np.maximum(1 - state.accuracies, 0.0)
        else:
            errors = np.abs(global_loss(state))
        shares = fair_shares(np.where(available.any(0), errors, 0.0), self.alpha)
        jobs = state.budget.of_processors(people.total_processors)
        self.wanted, self.targets = jobs * shares, feasible_targets(shares, jobs, people.capacity, available)
        scores = scores + self.floor * (scores[available].mean() if available.any() else 0.0)
        scores = np.where(available, np.maximum(scores, SMALLEST_SCORE * scores.max(initial=0.0)), 0.0)
        if not scores.any():
            scores = available.astype(np.float64)
        probability = fair_probabilities(scores, people.capacity, self.targets, available=available)
        return Probabilities(probability, people.processors, draws=self.draws)

    def notes(self) -> dict[str, Any]:
        """What fairness asked for and what the processors could serve."""
        lowered = bool((self.targets < self.wanted * (1 - 1e-9)).any())
        return {"wanted": self.wanted.tolist(), "targets": self.targets.tolist(), "lowered": lowered}
