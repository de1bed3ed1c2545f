"""SCAFFOLD (Karimireddy et al. 2020), one instance for each task, with heterogeneous sampling.

Local step: y <- y - eta (gradient - c_i + c). After K_i steps the client's variate becomes
c_i+ = c_i - c + (w - y) / (K_i eta). The server steps by Eq. 3 of [P1] and keeps c = sum_i d_i c_i: each
client that trained replaces its variate once, however many processors it used.
"""

import torch
from torch import Tensor

from fedmux.aggregation.aggregator import LocalRule, Updates
from fedmux.aggregation.stale import Remembering
from fedmux.aggregation.store import ClientStore
from fedmux.allocation import RoundState
from fedmux.flat import Model
from fedmux.population import Ints


class Scaffold(Remembering, LocalRule):
    def __init__(self, store: ClientStore) -> None:
        super().__init__(store)
        self.local_rule = self

    def prepare(self, state: RoundState, models: list[Model]) -> None:
        super().prepare(state, models)
        self.rates = state.learning_rates
        self.server = [self.store.mean(task) for task in range(len(models))]

    def corrections(self, task: int, clients: Ints) -> Tensor:
        """c - c_i, sent with the model."""
        return self.server[task] - self.store.get(task, clients)

    def gradient(self, gradient: Tensor, weights: Tensor, start: Tensor, correction: Tensor | None) -> Tensor:
        assert correction is not None
        return gradient + correction

    def add(self, updates: Updates) -> None:
        super().add(updates)
        task, clients = updates.task, self.assignment.client[updates.rows]
        before = self.store.get(task, clients)
        span = torch.from_numpy(updates.steps * self.rates[task]).to(before)
        variate = before - self.server[task] + updates.parameters.to(before) / span[:, None]
        self.store.put(task, clients, variate, self.sizes[clients, task], before)
