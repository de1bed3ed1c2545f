"""Federated quadratics: every client pulls towards its own point, so that optimum and drift are known."""

from dataclasses import dataclass

import numpy as np
import torch

from conftest import round_state
from fedmux.aggregation import Aggregator, LocalRule
from fedmux.allocation import Allocator, Assignment, Signals
from fedmux.population import Population
from stepping import NOBODY, deliver, zero_models


@dataclass(frozen=True)
class Quadratics:
    """f_is(w) = 1/2 (w - b_is)' diag(a_is) (w - b_is)."""

    people: Population
    curvature: np.ndarray  # N x S x P
    centre: np.ndarray  # N x S x P
    rate: float = 0.1
    steps: int = 3
    noise: float = 0.0  # of each local gradient

    @property
    def optimum(self) -> np.ndarray:
        """S x P"""
        weight = self.people.shares[:, :, None] * self.curvature
        return (weight * self.centre).sum(0) / weight.sum(0)

    def updates(
        self,
        weights: np.ndarray,
        round: int = 0,
        rule: LocalRule | None = None,
        drawn: Assignment = NOBODY,
    ) -> np.ndarray:
        """What every pair would send (N x S x P), all at once: local rules are elementwise.

        A rule's corrections are fetched for the pairs drawn; what the others would send then means nothing.
        """
        rng = np.random.default_rng(round)
        start = torch.from_numpy(np.broadcast_to(weights, self.centre.shape).copy())
        correction = torch.zeros_like(start)
        for client, task in zip(drawn.client.tolist(), drawn.task.tolist()):
            correction[client, task] = 0 if rule is None else rule.corrections(task, np.array([client]))[0]
        here = start.clone()
        for _ in range(self.steps):
            gradient = torch.from_numpy(self.curvature) * (here - torch.from_numpy(self.centre))
            gradient += torch.from_numpy(rng.normal(0, self.noise, self.centre.shape))
            if rule is not None:
                gradient = rule.gradient(gradient, here, start, correction)
            here = here - self.rate * gradient
        return (start - here).numpy()

    def losses(self, weights: np.ndarray) -> np.ndarray:
        return 0.5 * (self.curvature * (weights - self.centre) ** 2).sum(2)

    def errors(
        self, allocator: Allocator, aggregator: Aggregator, rounds: int, jobs: float, seed: int = 0
    ) -> np.ndarray:
        """||w_s - optimum||^2 after each round (rounds x S)."""
        tasks, size = self.centre.shape[1:]
        models = zero_models(tasks, size)
        history = []
        for number in range(rounds):
            weights = np.stack([model.parameters.numpy() for model in models])
            fields = {
                "round": number,
                "seed": seed,
                "jobs": jobs,
                "learning_rates": np.full(tasks, self.rate),
            }
            state = round_state(self.people, **fields)
            aggregator.prepare(state, models)
            signals = self._signals(weights, number, allocator, aggregator)
            state = round_state(self.people, signals=signals, **fields)
            assignment = allocator.plan(state).draw(state.rng())
            aggregator.begin(state, assignment, models)
            updates = self.updates(weights, number, aggregator.local_rule, assignment)
            models = deliver(aggregator, assignment, models, updates, self.steps)
            after = np.stack([model.parameters.numpy() for model in models])
            history.append(((after - self.optimum) ** 2).sum(1))
        return np.array(history)

    def _signals(
        self, weights: np.ndarray, round: int, allocator: Allocator, aggregator: Aggregator
    ) -> Signals:
        updates = self.updates(weights, round)
        if "residual" in allocator.needs:
            clients, tasks = self.people.sizes.shape
            for task in range(tasks):
                updates[:, task] -= aggregator.stale(task, np.arange(clients)).numpy()
        losses, norms = self.losses(weights), np.linalg.norm(updates, axis=2)
        return Signals(*(np.where(self.people.available, values, np.nan) for values in (losses, norms)))
