"""Least variance for each task by itself, within an equal share of the budget.

For one task this is optimal client sampling (Chen, Horvath and Richtarik 2022), p_is = min(1, c_s U_is). Each
task has its own c_s, and its scores do not matter to the others but where a processor is wanted for more than
it can do: there

    minimise  sum_i B_i sum_s U_is^2 / p_is   subject to  sum_s p_is <= 1,  sum_i B_i p_is = m_s for each s

with scores in units of their task's largest, so that every task keeps its jobs.
"""

import numpy as np

from fedmux.allocation.fair_variance import SMALLEST_SCORE, fair_probabilities
from fedmux.allocation.optimal import checked
from fedmux.allocation.plan import Probabilities, RoundState
from fedmux.allocation.targets import feasible_targets
from fedmux.allocation.variance_reduced import VarianceReduced, mixed
from fedmux.population import Floats


def probabilities_by_task(
    state: RoundState, scores: Floats, costs: Floats | None = None, units: Floats | None = None
) -> Floats:
    """p (N x S) for scores U; each task that somebody has gets the same part of the budget."""
    people = state.population
    costs = np.ones(people.tasks) if costs is None else costs
    each = np.where(people.available.any(0), 1 / costs, 0.0)  # jobs for one unit of the budget
    if not each.any():
        return np.zeros(scores.shape)
    budget = state.budget.of_processors(people.total_processors)
    if (costs != 1).any() and state.budget.jobs is not None:
        budget = state.budget.jobs  # in costs, which can be more than there are processors
    jobs = budget * each.sum() / np.count_nonzero(each)
    targets = feasible_targets(each / each.sum(), jobs, people.capacity, people.available, units=units)
    largest = np.where(people.available, scores, 0.0).max(0)
    scores = np.divide(scores, largest, out=np.ones(scores.shape), where=largest > 0)
    scores = np.where(people.available, np.maximum(scores, SMALLEST_SCORE), 0.0)
    return fair_probabilities(scores, people.capacity, targets, units=units, available=people.available)


class ByTask(VarianceReduced):
    """The scores of GVR or LVR, each task for itself."""

    def plan(self, state: RoundState) -> Probabilities:
        people = state.population
        if np.count_nonzero(people.available.any(0)) <= 1:
            return super().plan(state)
        scores, *_ = checked(self._scores(state), people.capacity, people.available)
        mean = np.where(people.available, scores, 0.0).sum(0) / np.maximum(people.available.sum(0), 1)
        scores = scores + self.options.floor * mean
        best = probabilities_by_task(state, scores, state.costs, state.units)
        random = mixed(state, np.ones(scores.shape), 1.0, self.options.draws)
        probability = (1 - self.mixing) * best + self.mixing * random.probability
        return Probabilities(probability, random.processors, draws=random.draws, costs=random.costs)
