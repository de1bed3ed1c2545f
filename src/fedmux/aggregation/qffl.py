"""q-FFL over tasks (Li et al. 2020, as the baseline of [P2]): steps scaled so that bad tasks move more.

The objective sum_s f_s^(q + 1) has block s of its gradient proportional to f^q g, with the local Lipschitz
bound L f^q + q f^(q-1) ||g||^2, L = 1 / eta. With delta the step of the inner rule, this is
w <- w - phi delta, phi = f / (f + q ||delta||^2 / eta). q = 0 is the inner rule itself.
"""

import numpy as np
from torch import Tensor

from fedmux.aggregation.aggregator import Aggregator, Updates
from fedmux.allocation import Assignment, RoundState
from fedmux.allocation.fair import demand_positive
from fedmux.errors import FedmuxError
from fedmux.model import Model
from fedmux.population import Floats


class QFair(Aggregator):
    """Scales the steps of another aggregator; f is the participants' loss before training."""

    def __init__(self, inner: Aggregator, q: float) -> None:
        self.inner, self.q = inner, q

    def begin(self, state: RoundState, assignment: Assignment, models: list[Model]) -> None:
        self.inner.workspace = self.workspace
        self.inner.begin(state, assignment, models)
        self.weights = self.inner.weights
        self._state = state
        self._sum, self._total = np.zeros(len(models)), np.zeros(len(models))
        self._rates = state.learning_rates

    def add(self, updates: Updates) -> None:
        if updates.losses is None:
            raise FedmuxError('q-FFL needs an allocator that `learns` the "loss" its clients start from')
        demand_positive(self._state.task(updates.task), updates.losses)
        self.inner.add(updates)
        weights = self.weights[updates.rows]
        self._sum[updates.task] += weights @ updates.losses
        self._total[updates.task] += weights.sum()

    def parts(self) -> list[Tensor | np.ndarray]:
        return [*self.inner.parts(), self._sum, self._total]

    def factor(self, task: int) -> float:
        """phi."""
        if self._total[task] == 0:
            return 0.0
        if self.q == 0:
            return 1.0
        loss = self._sum[task] / self._total[task]
        move = self.q * float(self.inner.step(task).double().square().sum()) / self._rates[task]
        return loss / (loss + move) if loss + move > 0 else 0.0

    def step(self, task: int) -> Tensor:
        return self.factor(task) * self.inner.step(task)

    def buffers(self, task: int, model: Model) -> Tensor:
        return self.inner.buffers(task, model)

    def forget(self, task: int) -> None:
        self.inner.forget(task)

    def step_sizes(self) -> Floats:
        factors = np.array([self.factor(task) for task in range(len(self._sum))])
        return factors * self.inner.step_sizes()
