"""MIFA (Gu et al. 2021): every client's last update counts as if it were fresh.

The memory is updated first, then delta = sum_i d_i h_i over all clients; no inverse probabilities. Biased
until every client has been seen: those not seen yet count as zero.
"""

import numpy as np
from torch import Tensor

from fedmux.aggregation.aggregator import Updates
from fedmux.aggregation.stale import Remembering
from fedmux.aggregation.store import ClientStore
from fedmux.population import Floats


class Mifa(Remembering):
    store: ClientStore  # whole vectors: what a projection loses would be missing from the model

    def take(self, updates: Updates) -> None:
        weighed = self.weighed(updates)
        self.remember(updates, self.store.get(updates.task, self.assignment.client[updates.rows]))
        self.count(weighed)

    def step_sizes(self) -> Floats:
        """Every client seen counts with its share."""
        counted = self.store.counted.sum(0)
        self.workspace.team.sum(counted)
        return counted / np.maximum(self.store.total, 1.0)

    def step(self, task: int) -> Tensor:
        return self.store.mean(task).to(self.sums[task])
