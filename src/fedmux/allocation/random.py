"""Random allocation: all clients equally likely, each uniform over its own tasks.

[P1] section VII (processors): each usable processor is active with probability m / V, then uniform over
its client's tasks, p_is = m / (V |S_i|). [P2] section III (clients): m clients without replacement, one
task each. `spread` serves every allocator that first picks who is active and then a task.
"""

from typing import Literal

import numpy as np

from fedmux.allocation.full import FullAllocator
from fedmux.allocation.plan import Allocator, Plan, Probabilities, RoundState
from fedmux.population import Bools, Floats, row_counts, row_sums

Participation = Literal["processors", "clients"]


def spread(
    state: RoundState, choice: Floats, participation: Participation, marginal: Floats | None = None
) -> Probabilities:
    """A plan in which all clients that can are equally likely to be active, and then pick by `choice`.

    choice: N x S, rows are distributions over a client's own tasks, or zero for a client that sits out.
    marginal: the expectation of `choice`, if `choice` is random.
    """
    population = state.population
    takes_part = row_sums(choice) > 0
    if participation == "clients":
        candidates = int(np.count_nonzero(takes_part))
        clients = state.budget.of_clients(candidates) if candidates else 0
        processors = takes_part.astype(np.int64)
        active = clients / max(candidates, 1)
    else:
        clients = None
        processors = np.where(takes_part, population.processors, 0)
        total = int(processors.sum())
        active = state.budget.of_processors(total) / max(total, 1)
    return Probabilities(
        probability=active * choice,
        processors=processors,
        marginal=None if marginal is None else active * marginal,
        clients=clients,
    )


def uniform_choice(available: Bools) -> Floats:
    """Rows uniform over the client's own tasks (N x S)."""
    return available * uniform_entry(available)[:, None]


def uniform_entry(available: Bools) -> Floats:
    """1 / |S_i|, the one number in a row of `uniform_choice` (N); 0 for a client without tasks."""
    number = row_counts(available)
    return np.divide(1.0, number, out=np.zeros(len(number)), where=number > 0)


class RandomAllocator(Allocator):
    """p_is = m / (V |S_i|), or m whole clients."""

    def __init__(self, participation: Participation) -> None:
        self.participation = participation

    def plan(self, state: RoundState) -> Plan:
        return spread(state, uniform_choice(state.population.available), self.participation)


class WarmStart(RandomAllocator):
    """All clients train all tasks in the first round, then Random."""

    def plan(self, state: RoundState) -> Plan:
        return FullAllocator().plan(state) if state.round == 0 else super().plan(state)
