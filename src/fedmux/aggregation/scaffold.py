"""SCAFFOLD (Karimireddy et al. 2020), one instance for each task, with heterogeneous sampling.

Local step: y <- y - eta (gradient - c_i + c). After K_i steps the client's variate becomes
c_i+ = c_i - c + (w - y) / (K_i eta): the mean of the gradients along its path. The server steps by Eq. 3 of
[P1] and keeps c = sum_i d_i c_i: each client that trained replaces its variate once, however many processors
it used.

Momentum makes a local update longer than K_i mean gradients; K_i is then the sum of the factors with which
the gradients enter it, so that c_i+ is still a mean of gradients.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation.aggregator import Updates
from fedmux.aggregation.local_rule import LocalRule, Scalar
from fedmux.aggregation.stale import Remembering
from fedmux.aggregation.store import Store
from fedmux.allocation import RoundState
from fedmux.model import Model
from fedmux.population import Floats, Ints


class Corrected(LocalRule):
    """The local step. Corrections c - c_i are known at the server alone; a real client is sent its own."""

    def __init__(self, known: Callable[[int, Ints], Tensor] | None = None) -> None:
        self.known = known  # task, clients -> k x P

    def corrections(self, task: int, clients: Ints) -> Tensor | None:
        return None if self.known is None else self.known(task, clients)

    def gradient(self, gradient: Tensor, weights: Tensor, start: Tensor, correction: Tensor | None) -> Tensor:
        assert correction is not None
        return gradient + correction

    def arguments(self) -> dict[str, Scalar]:
        return {}


class Scaffold(Remembering):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.local_rule = Corrected(self.corrections)

    def prepare(self, state: RoundState, models: list[Model]) -> None:
        super().prepare(state, models)
        self.rates = state.learning_rates
        self.momenta = np.zeros(len(models)) if state.momenta is None else state.momenta
        self.server = [self.store.mean(task) for task in range(len(models))]

    def corrections(self, task: int, clients: Ints) -> Tensor:
        """c - c_i, sent with the model."""
        return self.server[task] - self.store.get(task, clients)

    def take(self, updates: Updates) -> None:
        weighed = self.weighed(updates)
        task, clients = updates.task, self.assignment.client[updates.rows]
        before = self.store.get(task, clients)
        factors = total_factor(updates.steps, float(self.momenta[task]))
        span = torch.from_numpy(factors * self.rates[task]).to(before)
        variate = before - self.server[task] + updates.parameters.to(before) / span[:, None]
        self.store.put(task, clients, variate, self.sizes[clients, task], before)
        self.count(weighed)


def total_factor(steps: Ints, momentum: float) -> Floats:
    """Sum of the factors with which the gradients of K steps enter an update, in units of the learning rate.

    Step j's gradient is in the velocity of that step and all later ones: (1 - m^(K - j)) / (1 - m), j from 0.
    Without momentum the sum is K.
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
