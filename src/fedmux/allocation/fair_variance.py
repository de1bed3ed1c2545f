"""Least variance for a given expected number of jobs per task (MMFL-FairVR, [P1] Eq. 23).

    minimise  sum_i B_i sum_s U_is^2 / p_is   subject to  sum_s p_is <= 1,  sum_i B_i p_is = m_s for each s

KKT: p_is = U_is / sqrt(lambda_s + mu_i), mu_i >= 0 and 0 unless client i is saturated, lambda_s of either
sign. The dual has S unknowns: for given lambda every row is solved exactly (`fill_rows`), and lambda is
found by damped Newton steps on the concave dual, whose gradient is sum_i B_i p_is - m_s. If a job of task s
takes u_s units of a processor, sum_s u_s p_is <= 1: in terms of the load u_s p_is all units are 1, with
scores U_is sqrt(u_s) and targets u_s m_s.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from fedmux.allocation.costs import fill_rows
from fedmux.allocation.fair import Measure, badness, fair_shares
from fedmux.allocation.optimal import checked, checked_units
from fedmux.allocation.plan import Allocator, Draws, Probabilities, RoundState, Signal
from fedmux.allocation.targets import feasible_targets
from fedmux.allocation.variance_reduced import floored
from fedmux.population import Bools, Floats, Ints

SMALLEST_SCORE = 1e-5  # of the largest score: beyond this range the solver's digits run out
CLOSE_ENOUGH = 1e-7  # relative distance from a target


def fair_probabilities(
    scores: Floats,
    capacity: Ints,
    targets: Floats,
    *,
    units: Floats | None = None,
    available: Bools | None = None,
) -> Floats:
    """p (N x S) for scores U > 0 on available pairs, processors B (N), targets m_s (S) and units u_s (S).

    A task with target 0 is left out. Raises ValueError for targets that the processors cannot serve; lower
    them first with `feasible_targets`.
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
    load = checked_units(units, len(targets))[tasks]
    u = np.where(useful, scores[:, tasks] * np.sqrt(load), 0.0)[rows]
    if (useful[rows] & (u <= 0)).any():
        client, task = (int(index[0]) for index in np.nonzero(useful[rows] & (u <= 0)))
        raise ValueError(
            f"the score of client {rows[client]} for task {tasks[task]} must be above 0; add a floor"
        )
    missing = tasks[~useful.any(0)]
    if len(missing):
        raise ValueError(f"task {missing[0]} has a target but no client that can train it")
    solved = _Dual(u / u.max(), capacity[rows].astype(np.float64), targets[tasks] * load).solve()
    probability[np.ix_(rows, tasks)] = solved / load
    return probability


@dataclass(frozen=True, eq=False)
class _Point:
    """The dual at given prices."""

    price: Floats  # S: lambda
    p: Floats  # N x S
    level: Floats  # N x S: lambda_s + mu_i
    gap: Floats  # S: sum_i B_i p_is - m_s, the gradient
    value: float
    worst: float  # the largest relative distance from a target


class _Dual:
    def __init__(self, scores: Floats, capacity: Floats, targets: Floats) -> None:
        self.u, self.b, self.m = scores, capacity, targets

    def solve(self) -> Floats:
        # Exact if nobody is saturated, and an upper bound on the solution otherwise.
        best = here = self._at((self.b @ self.u / self.m) ** 2)
        stalled = 0
        for _ in range(200):
            if best.worst < (1e-12 if stalled < 3 else 1e-9 if stalled < 12 else 1e-5):
                break
            before, here = here, self._next(here)
            if here is before:
                break
            stalled += 1
            if here.worst < best.worst:
                best, stalled = here, 0
        p, worst = self._polished(best) if 1e-9 < best.worst < 1e-4 else (best.p, best.worst)
        if worst > CLOSE_ENOUGH:
            raise ValueError(
                f"the targets cannot be met (off by {worst:.2%}): they ask for {self.m.sum():g} of "
                f"{self.b.sum():g} processors; lower them with feasible_targets"
            )
        return p

    def _polished(self, found: _Point) -> tuple[Floats, float]:
        """With nearly everyone saturated and scores far apart, prices are too close together to resolve.
        Alternately scaling columns to the targets and rows to 1 meets the targets; so small a change costs
        nothing, since the variance is flat at its minimum."""
        p, best = found.p, (found.p, found.worst)
        for _ in range(200):
            p = p * (self.m / (self.b @ p))
            p = p / np.maximum(p.sum(1, keepdims=True), 1.0)
            worst = float(np.abs(self.b @ p / self.m - 1).max())
            if worst < best[1]:
                best = p, worst
            if worst < 1e-10:
                break
        return best

    def _at(self, price: Floats) -> _Point:
        p, level = fill_rows(self.u, price)
        gap = self.b @ p - self.m
        cost = np.divide(self.u**2, p, out=np.zeros(p.shape), where=self.u > 0).sum(1)
        worst = float(np.abs(gap / self.m).max())
        return _Point(price, p, level, gap, float(self.b @ cost + price @ gap), worst)

    def _next(self, here: _Point) -> _Point:
        """The result of a Newton step on (served / m)^-2 = 1, which is exact if nobody is saturated; if that
        makes too little progress, of a plain one."""
        links, excess = self._hessian(here)
        _, label = connected_components(links > 0, directed=False)
        closed = [label == part for part in range(label.max() + 1) if not excess[label == part].any()]
        shift = self._shift(here, closed)
        if shift.any():
            return self._search(here, shift)[1]
        served = here.gap / self.m + 1
        best = here
        for aim in (self.m * (served**3 - served) / 2, here.gap.copy()):
            for tasks in closed:  # their total cannot change
                aim[tasks] -= self.m[tasks] * (aim[tasks].sum() / self.m[tasks].sum())
            step = _solve(links, excess, aim)
            if step @ here.gap > 0:
                length, there = self._search(here, step)
                if best is here or there.value > best.value:
                    best = there
                if length > 0.1:
                    break
        return best

    def _search(self, here: _Point, step: Floats) -> tuple[float, _Point]:
        """Search along a step until the dual's slope has halved: it is concave, so the slope only falls.

        Past the maximum the dual must also have grown: steps that fall back could cycle.
        """
        slope = float(step @ here.gap)
        low, high, t = 0.0, np.inf, 1.0
        for _ in range(60):
            there = self._at(here.price + t * step)
            rest = float(step @ there.gap)
            if abs(rest) <= 0.5 * slope and (rest >= 0 or there.value >= here.value):
                break
            if rest > 0:
                low = t
            else:
                high = t
            t = 4 * t if np.isinf(high) else t / 8 if low == 0 else (low + high) / 2
        return t, there

    def _hessian(self, here: _Point) -> tuple[Floats, Floats]:
        """Minus the derivative of served jobs with respect to prices, as links (S x S) and excess (S).

        Saturated clients shift jobs between their tasks (the Laplacian of the links); the others add to the
        diagonal (the excess).
        """
        weight = here.p / (2 * here.level)
        full = here.p.sum(1) > 1 - 1e-12
        total = weight.sum(1)
        share = np.divide(self.b, total, out=np.zeros(len(total)), where=full & (total > 0))
        links = (weight * share[:, None]).T @ weight
        np.fill_diagonal(links, 0.0)
        excess = np.where(full, 0.0, self.b) @ weight
        return links, excess

    def _shift(self, here: _Point, closed: list[Bools]) -> Floats:
        """A step for tasks whose clients are all saturated although less is wanted: raising their prices
        together changes nothing until the first client's mu reaches 0, so there is no Newton step."""
        step = np.zeros(len(self.m))
        for tasks in closed:
            if here.gap[tasks].sum() > 1e-12 * self.m[tasks].sum():
                step[tasks] = (here.level - here.price)[:, tasks][self.u[:, tasks] > 0].mean()
        return step


def _solve(links: Floats, excess: Floats, right: Floats) -> Floats:
    """Solve (Laplacian of the links + diagonal of the excess) x = right by elimination without subtractions.

    So it stays accurate when nearly everyone is saturated (Grassmann, Taksar & Heyman 1985). Without any
    excess x is determined up to a constant: one entry is 0.
    """
    links, excess, right = links.copy(), excess.copy(), right.copy()
    pivots = np.zeros(len(right))
    for k in range(len(right) - 1, -1, -1):
        pivots[k] = links[k, :k].sum() + excess[k]
        if pivots[k] > 0:
            part = links[:k, k] / pivots[k]
            links[:k, :k] += np.outer(part, links[k, :k])
            np.fill_diagonal(links, 0.0)
            excess[:k] += part * excess[k]
            right[:k] += part * right[k]
    x = np.zeros(len(right))
    for k in range(len(right)):
        if pivots[k] > 0:
            x[k] = (right[k] + links[k, :k] @ x[:k]) / pivots[k]
    return x


class FairTargets:
    """Alpha-fair expected jobs of each task, lowered to what the processors can serve."""

    def __init__(self, alpha: float, measure: Measure) -> None:
        self.alpha, self.measure = alpha, measure
        self.needs: frozenset[Signal] = frozenset({"accuracy" if measure == "error" else "loss"})
        self.wanted = self.targets = np.zeros(0)

    def plan(self, state: RoundState, scores: Floats, draws: Draws) -> Probabilities:
        """The least variance for scores (N x S, 0 where a pair is not available) at these numbers."""
        people = state.population
        shares = fair_shares(badness(state, self.measure), self.alpha)
        jobs = state.budget.of_processors(people.total_processors)
        self.wanted = jobs * shares
        self.targets = feasible_targets(shares, jobs, people.capacity, people.available, units=state.units)
        least = SMALLEST_SCORE * scores.max(initial=0.0)
        scores = np.where(people.available, np.maximum(scores, least), 0.0)
        if not scores.any():
            scores = people.available.astype(np.float64)
        probability = fair_probabilities(
            scores, people.capacity, self.targets, units=state.units, available=people.available
        )
        return Probabilities(probability, people.processors, draws=draws)

    def notes(self) -> dict[str, Any]:
        """What fairness asked for and what the processors could serve."""
        lowered = bool((self.targets < self.wanted * (1 - 1e-9)).any())
        return {"wanted": self.wanted.tolist(), "targets": self.targets.tolist(), "lowered": lowered}


class FairVarianceAllocator(Allocator):
    """FairVR: LVR's scores at alpha-fair numbers of jobs."""

    def __init__(self, alpha: float, measure: Measure, floor: float, draws: Draws) -> None:
        self.fair, self.floor, self.draws = FairTargets(alpha, measure), floor, draws
        self.needs = self.fair.needs | {"loss"}

    def plan(self, state: RoundState) -> Probabilities:
        people = state.population
        available = people.available
        losses = state.signals.losses
        assert losses is not None
        # A missing or non-finite loss must not count as 0: `checked` raises and names the client.
        weight = people.shares / np.maximum(people.capacity, 1)[:, None]
        scores, *_ = checked(np.where(available, weight * np.abs(losses), 0.0), people.capacity, available)
        return self.fair.plan(state, floored(scores, available, self.floor), self.draws)

    def notes(self) -> dict[str, Any]:
        return self.fair.notes()
