"""Stale updates as control variates: [P1] Eq. 22 (MMFL-GVR*, FedVARP), FedStale, and the optimal weights.

    w <- w - ( sum_i d_i beta_i h_i  +  sum_active c_i (G_i - beta_i h_i) ),      c_i = counts d / (B p)

h_i is client i's last update, 0 before its first, or what the store kept of it. Unbiased for any h and beta
fixed before the draw; the variance is that of G - beta h. Even with nobody active the model moves by the
first sum, as unbiasedness requires. beta = 1 is Eq. 22; beta = 0 is Eq. 3.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation.aggregator import Updates
from fedmux.aggregation.store import Store
from fedmux.aggregation.unbiased import Unbiased
from fedmux.allocation import Assignment, RoundState
from fedmux.errors import FedmuxError
from fedmux.model import Model
from fedmux.population import Floats, Ints

MEMORY = 0.9  # weight of the past in the running means behind an estimated beta


class Remembering(Unbiased):
    """An aggregator that keeps the last update of every client seen."""

    remembers = True

    def __init__(self, store: Store) -> None:
        self.store = store

    def prepare(self, state: RoundState, models: list[Model]) -> None:
        self.store.workspace = self.workspace
        self.sizes = state.population.sizes
        self.store.begin(state, models)

    def stale(self, task: int, clients: Ints) -> Tensor:
        return self.store.get(task, clients)

    def remember(self, updates: Updates, before: Tensor) -> None:
        clients = self.assignment.client[updates.rows]
        sizes = self.sizes[clients, updates.task]
        self.store.put(updates.task, clients, updates.parameters, sizes, before)

    def finish(self, models: list[Model]) -> list[Model]:
        finished = super().finish(models)
        self.store.end()
        return finished

    def forget(self, task: int) -> None:
        self.store.forget(task)

    def server_bytes(self, task: int) -> int:
        return self.store.bytes(task)

    def state(self) -> dict[str, Tensor]:
        return self.store.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self.store.workspace = self.workspace
        self.store.restore(state)


class Stale(Remembering):
    """One beta per task: a number, or the variance-minimising one, estimated from the clients that trained.

    beta* = sum a <G, h> / sum a ||h||^2 with a = d^2 / B (1 / p - 1). Both sums are estimated from the active
    clients, weighted counts / (B p), and averaged over rounds; a round's estimate is used from the next round
    on, since using it at once would bias the step.
    """

    summed = ("_fresh",)

    def __init__(self, store: Store, beta: float | Literal["estimated"] = 1.0) -> None:
        super().__init__(store)
        self.beta = beta
        self.learned = np.zeros((2, 0))  # numerator and denominator of beta* for each task

    def prepare(self, state: RoundState, models: list[Model]) -> None:
        super().prepare(state, models)
        if self.learned.shape[1] < len(models):
            grown = np.zeros((2, len(models)))
            grown[:, : self.learned.shape[1]] = self.learned
            self.learned = grown

    def begin(self, state: RoundState, assignment: Assignment, models: list[Model]) -> None:
        super().begin(state, assignment, models)
        self.betas = self.stale_weights(state)
        self._fresh = np.zeros_like(self.learned)
        shares = state.population.shares[assignment.client, assignment.task]
        probability = np.minimum(assignment.probability, 1.0)
        processors = assignment.expected / assignment.probability
        self._learning = (
            assignment.count / assignment.expected * shares**2 / processors * (1 / probability - 1)
        )
        self.past = [self._past(task, state) for task in range(len(models))]

    def stale_weights(self, state: RoundState) -> Floats:
        if self.beta != "estimated":
            return np.full(state.population.sizes.shape, self.beta)
        over, under = self.learned
        best = np.divide(over, under, out=np.ones(len(over)), where=under > 0)
        return np.broadcast_to(best, state.population.sizes.shape)

    def _past(self, task: int, state: RoundState) -> Tensor:
        """sum_i d_i beta_i h_i; O(P), since beta is the same for all."""
        return self.store.mean(task) * float(self.betas[0, task])

    def take(self, updates: Updates) -> None:
        clients = self.assignment.client[updates.rows]
        before = self.store.get(updates.task, clients).to(updates.parameters)
        beta = torch.from_numpy(self.betas[clients, updates.task].copy()).to(before)
        fresh = self.weighed(replace(updates, parameters=updates.parameters - beta[:, None] * before))
        learned = [0.0, 0.0]
        if self.beta == "estimated":
            weight = torch.from_numpy(self._learning[updates.rows]).to(before)
            learned = [float(weight @ (other * before).sum(1)) for other in (updates.parameters, before)]
        self.remember(updates, before.float())
        self.count(fresh)
        self._fresh[:, updates.task] += learned

    def step(self, task: int) -> Tensor:
        return self.past[task] + super().step(task)

    def finish(self, models: list[Model]) -> list[Model]:
        finished = super().finish(models)
        heard = self._fresh[1] > 0
        self.learned = np.where(heard, MEMORY * self.learned + (1 - MEMORY) * self._fresh, self.learned)
        return finished

    def forget(self, task: int) -> None:
        super().forget(task)
        self.learned[:, task : task + 1] = 0.0

    def state(self) -> dict[str, Tensor]:
        return {**super().state(), "learned": torch.from_numpy(self.learned)}

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        if "learned" in state:
            self.learned = state["learned"].numpy().copy()


class PlannedStale(Stale):
    """A beta for each client and task, by the plan: least variance at <G_is, h_is> / ||h_is||^2."""

    def stale_weights(self, state: RoundState) -> Floats:
        if state.betas is None:
            raise FedmuxError(
                "this aggregator takes the weights of stale updates from the plan, which has none; "
                "set `betas` of fedmux.Probabilities"
            )
        return np.where(state.population.available, state.betas, 0.0)

    def _past(self, task: int, state: RoundState) -> Tensor:
        return self.store.weighted(task, state.population.shares[:, task] * self.betas[:, task])
