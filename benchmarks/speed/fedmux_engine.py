"""fedmux itself: the fleet trains every client, the updates are averaged as they come.

    python benchmarks/speed/fedmux_engine.py --model cnn --clients 12

Its own shuffling is switched off here, so that every engine sees the same batches.
"""

import argparse
import multiprocessing
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from harness import arguments, measure, work_of
from torch import Tensor
from torch.distributed import FileStore
from work import LEARNING_RATE, Work, flat

from fedmux.allocation import Assignment
from fedmux.distributed.team import ALONE, Processes, Team
from fedmux.distributed.workers import join
from fedmux.fleet import local, stacked
from fedmux.fleet.engine import Engine
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.model import Model
from fedmux.population import Ints
from fedmux.tasks import build_loss, build_metric
from fedmux.tasks.task import LocalSgd, Task


def in_order(task: Task, index: int, client: int, round: int, seed: int) -> Ints:
    """A client's rows, one epoch, without a shuffle."""
    return np.arange(task.offsets[client], task.offsets[client + 1])[None]


class Fedmux:
    def __init__(self, work: Work, engine: Engine, team: Team = ALONE) -> None:
        module, (x, y) = work.module(), work.data()
        x, y = x.flatten(0, 1), y.flatten()
        task = Task(
            name=work.model,
            module=module,
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
        self.fleet = SimulatedFleet([task], seed=0, engine=engine, team=team, sticky=False)
        self.model = self.fleet.tasks[0].layout.read()
        everyone, once = np.arange(work.clients), np.ones(work.clients)
        self.assignment = Assignment(everyone, 0 * everyone, 0 * everyone + 1, once, once)

    def round(self) -> None:
        total = torch.zeros_like(self.model.parameters)
        for updates in self.fleet.train([self.model], self.assignment, 0, None):
            total += updates.parameters.sum(0)
        self.fleet.team.sum(total)
        mean = total / len(self.assignment)
        self.model = Model(self.model.parameters - mean, self.model.buffers)

    def weights(self) -> Tensor:
        return flat([self.model.parameters])


def work_along(rank: int, size: int, place: Path, given: argparse.Namespace) -> None:
    """A worker: the same rounds as the first process, until that is done."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % given.workers]})
    local.orders = stacked.orders = in_order
    torch.set_num_threads(1)
    join(FileStore(str(place), size), rank, size, torch.device("cpu"))
    engine = Fedmux(work_of(given), Engine(torch.device("cpu")), Processes(lambda: ""))
    for _ in range(given.rounds + 1):
        engine.round()


def main() -> None:
    given = arguments(__doc__)
    local.orders = stacked.orders = in_order
    device = torch.device(given.device, 0) if given.device == "cuda" else torch.device("cpu")
    engine = Engine(device, given.precision)
    if given.workers == 1:
        suffix = "" if given.precision == "fp32" else f"-{given.precision}"
        measure(f"fedmux{suffix}", given, Fedmux(work_of(given), engine))
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "team"
        spawn = multiprocessing.get_context("spawn")
        crew = [
            spawn.Process(target=work_along, args=(rank, given.workers, place, given), daemon=True)
            for rank in range(1, given.workers)
        ]
        for process in crew:
            process.start()
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        join(FileStore(str(place), given.workers), 0, given.workers, device)
        measure(
            f"fedmux-{given.workers}-workers", given, Fedmux(work_of(given), engine, Processes(lambda: ""))
        )


if __name__ == "__main__":
    main()
