"""fedmux itself: the fleet trains every client, the updates are averaged as they come.

    python benchmarks/speed/fedmux_engine.py --model cnn --clients 12

Its own shuffling is switched off here, so that every engine sees the same batches.
"""

import numpy as np
import torch
from harness import arguments, measure, work_of
from torch import Tensor
from work import LEARNING_RATE, Work, flat

from fedmux.allocation import Assignment
from fedmux.flat import Layout, Model
from fedmux.fleet import local, stacked
from fedmux.fleet.engine import Engine
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.population import Ints
from fedmux.tasks import build_loss, build_metric
from fedmux.tasks.task import LocalSgd, Task


def in_order(task: Task, index: int, client: int, round: int, seed: int) -> Ints:
    """A client's rows, one epoch, without a shuffle."""
    return np.arange(task.offsets[client], task.offsets[client + 1])[None]


class Fedmux:
    def __init__(self, work: Work, device: str) -> None:
        module, (x, y) = work.module(), work.data()
        x, y = x.flatten(0, 1), y.flatten()
        task = Task(
            name=work.model,
            module=module,
            layout=Layout(module),
            loss=build_loss("cross-entropy", {}),
            metric=build_metric("accuracy"),
            x=x,
            y=y,
            offsets=np.arange(work.clients + 1) * work.steps * work.batch,
            validation=(x[:1], y[:1]),
            test=(x[:1], y[:1]),
            local=LocalSgd(batch_size=work.batch, epochs=1),
            learning_rate=lambda round: LEARNING_RATE,
        )
        start = task.layout.read()
        self.model = Model(start.parameters.to(device), start.buffers.to(device))
        self.fleet = SimulatedFleet([task], seed=0, engine=Engine(torch.device(device)))
        everyone, once = np.arange(work.clients), np.ones(work.clients)
        self.assignment = Assignment(everyone, 0 * everyone, 0 * everyone + 1, once, once)

    def round(self) -> None:
        total = torch.zeros_like(self.model.parameters)
        for updates in self.fleet.train([self.model], self.assignment, 0, None):
            total += updates.parameters.sum(0)
        mean = total / len(self.assignment)
        self.model = Model(self.model.parameters - mean, self.model.buffers)

    def weights(self) -> Tensor:
        return flat([self.model.parameters])


if __name__ == "__main__":
    given = arguments(__doc__)
    local.orders = stacked.orders = in_order
    measure("fedmux", given, Fedmux(work_of(given), given.device))
