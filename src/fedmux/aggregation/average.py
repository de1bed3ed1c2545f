"""Averages over the clients that trained: by data as in [P2] Eq. 6 (FedAvg), or the plain mean of [P3].

Weights are normalised over the updates that came back, so a client that fails does not shrink the step. A
task that nobody trained stays as it is. A client counts once per processor on the task.
"""

from typing import Literal

import numpy as np
from torch import Tensor

from fedmux.aggregation.aggregator import Aggregator
from fedmux.allocation import Assignment
from fedmux.population import Floats


class Average(Aggregator):
    def __init__(self, weights: Literal["data", "equal"]) -> None:
        self.by_data = weights == "data"

    def job_weights(self, assignment: Assignment, shares: Floats) -> Floats:
        return assignment.count * shares if self.by_data else assignment.count.astype(np.float64)

    def step(self, task: int) -> Tensor:
        return self.sums[task] / self.total[task] if self.total[task] > 0 else self.sums[task]

    def step_sizes(self) -> Floats:
        return np.where(self.total > 0, 1.0, 0.0)
