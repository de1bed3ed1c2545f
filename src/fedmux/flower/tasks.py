"""What a Flower app brings for each task: its module, its data where the data lies, its loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.population import Ints
from fedmux.privacy import Privacy
from fedmux.tasks import Loss, build_loss, build_metric
from fedmux.tasks.losses import default_metric
from fedmux.tasks.task import LocalSgd, Task

NodeConfig = Mapping[str, Any]  # what a SuperNode was started with, such as partition-id
Points = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class How:
    """The server's settings for a task's local training."""

    local: LocalSgd
    rate: Callable[[int], float]
    privacy: Privacy | None


@dataclass(frozen=True)
class FlowerTask:
    """`module` is called at the server and at clients; `train` at a client, `held_out` at the server."""

    module: Callable[[], nn.Module]
    train: Callable[[NodeConfig], Points | None]  # a client's own points; None: it does not have the task
    held_out: Callable[[], tuple[Points, Points]]  # validation and test points, as the server has them
    loss: str | Loss = "cross-entropy"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    metric: str | None = None
    privacy: Privacy | None = None  # a client's own rule, which overrides the server's

    def task(self, name: str, how: How, points: Points, at: int) -> Task:
        """For one client, with its points at its number in the fleet, on which the seed's draws depend."""
        how = replace(how, privacy=self.privacy or how.privacy)
        return self._task(name, how, points, np.array([0] * (at + 1) + [len(points[0])]), (points, points))

    def server_task(self, name: str, how: How) -> Task:
        """Without any client's points."""
        how = replace(how, privacy=self.privacy or how.privacy)
        held_out = self.held_out()
        nothing = held_out[1][0][:0], held_out[1][1][:0]
        return self._task(name, how, nothing, np.array([0, 0]), held_out)

    def _task(
        self,
        name: str,
        how: How,
        points: Points,
        offsets: Ints,
        held_out: tuple[Points, Points],
    ) -> Task:
        return Task(
            name=name,
            module=self.module(),
            loss=build_loss(self.loss, dict(self.loss_options)),
            metric=build_metric(self.metric or default_metric(self.loss)),
            x=points[0],
            y=points[1],
            offsets=offsets,
            validation=held_out[0],
            test=held_out[1],
            local=how.local,
            learning_rate=how.rate,
            privacy=how.privacy,
        )


def check(experiment: Experiment) -> None:
    """Refuse what only a simulation can do: real clients come and go by themselves."""
    if experiment.dropout and experiment.dropout.rate not in (0, (0, 0)):
        raise FedmuxError(
            "[dropout] rate is for simulations; real clients fail by themselves: set rate = 0.0"
        )
    if experiment.population.start is not None:
        raise FedmuxError("population.start is for simulations; real clients join by themselves: remove it")
    for key in ("events", "arrivals", "departures", "absence", "recruitment"):
        if getattr(experiment, key):
            name = "[event]" if key == "events" else key
            raise FedmuxError(f"[{name}] is for simulations; real clients come and go themselves: remove it")


def from_experiment(experiment: Experiment) -> dict[str, FlowerTask]:
    """An experiment file's tasks with a simulation's data; a node is the client of its `partition-id`."""
    from fedmux.training.assembly import assemble

    torch.set_num_threads(1)
    setting = assemble(experiment)

    def train(number: int, config: NodeConfig) -> Points | None:
        task, client = setting.tasks[number], int(config["partition-id"])
        start, end = task.offsets[client], task.offsets[client + 1]
        return (task.x[start:end], task.y[start:end]) if end > start else None

    return {
        task.name: FlowerTask(
            module=partial(_itself, task.module),
            train=partial(train, number),
            held_out=partial(_itself, (task.validation, task.test)),
            loss=settings.loss,
            loss_options=settings.loss_options,
            metric=settings.metric,
        )
        for number, (task, settings) in enumerate(zip(setting.tasks, experiment.tasks))
    }


def _itself(value: Any) -> Any:
    return value
