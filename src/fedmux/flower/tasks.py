"""What a Flower app brings for each task: its module, and its data where the data lies."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.flower.fitting import Points, fits, pair
from fedmux.flower.objective import Objective, disagreement
from fedmux.importing import first_line
from fedmux.population import Ints
from fedmux.privacy import Privacy
from fedmux.tasks.task import LocalSgd, Task

NodeConfig = Mapping[str, Any]  # what a SuperNode was started with, such as partition-id
TRAIN, HELD_OUT = "train(node_config)", "held_out()"  # where points come from, in error messages


@dataclass(frozen=True)
class How:
    """The experiment's settings for a task's training."""

    local: LocalSgd
    rate: Callable[[int], float]
    privacy: Privacy | None
    objective: Objective = field(default_factory=Objective)


@dataclass(frozen=True)
class FlowerTask:
    """`module` is called at the server and at clients; `train` at a client, `held_out` at the server.

    Loss, metric and privacy are those of the experiment. Where they are given here too they must be the same,
    but a privacy may be given here alone. A `module:function` of the user's own has to be named here too.
    """

    module: Callable[[], nn.Module]
    train: Callable[[NodeConfig], Points | None]  # a client's own points; None: it does not have the task
    held_out: Callable[[], tuple[Points, Points]]  # validation and test points, as the server has them
    loss: str | None = None
    loss_options: Mapping[str, Any] | None = None
    metric: Any = None
    privacy: Privacy | None = None

    def points(self, name: str, config: NodeConfig) -> Points | None:
        """A client's own."""
        with of_task(name):
            given = self.train(config)
            return None if given is None else pair(given, TRAIN)

    def task(self, name: str, how: How, points: Points, at: int) -> Task:
        """For one client, with its points at its number in the fleet, on which the seed's draws depend."""
        offsets = np.array([0] * (at + 1) + [len(points[0])])
        with of_task(name):
            task = self._task(name, how, points, offsets, (points, points))
            fits(task, points, TRAIN, how.objective.loss)
        return task

    def server_task(self, name: str, how: How) -> Task:
        """Without any client's points."""
        with of_task(name):
            given = self.held_out()
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise FedmuxError(f"{HELD_OUT} must return two pairs: points for validation and for test")
            validation, test = (pair(part, HELD_OUT) for part in given)
            nothing = test[0][:0], test[1][:0]
            task = self._task(name, how, nothing, np.array([0, 0]), (validation, test))
            for part in (validation, test):
                fits(task, part, HELD_OUT, how.objective.loss)
        return task

    def _task(
        self,
        name: str,
        how: How,
        points: Points,
        offsets: Ints,
        held_out: tuple[Points, Points],
    ) -> Task:
        own = {"loss": self.loss, "loss_options": self.loss_options, "metric": self.metric}
        how.objective.agree(own)
        if self.privacy and how.privacy and self.privacy != how.privacy:
            raise disagreement("privacy", self.privacy.model_dump(), how.privacy.model_dump())
        loss, metric = how.objective.functions()
        return Task(
            name=name,
            module=self.module(),
            loss=loss,
            metric=metric,
            scale=how.objective.scale,
            x=points[0],
            y=points[1],
            offsets=offsets,
            validation=held_out[0],
            test=held_out[1],
            local=how.local,
            learning_rate=how.rate,
            privacy=self.privacy or how.privacy,
        )


@contextmanager
def of_task(name: str) -> Iterator[None]:
    """What the app's code raises inside is an error of this task, in one line."""
    place = f'task "{name}": '
    try:
        yield
    except FedmuxError as error:
        raise FedmuxError(place + str(error).removeprefix(place)) from error.__cause__
    except SystemExit as error:
        raise FedmuxError(f"{place}the app's code ended the process (SystemExit: {error})") from error
    except Exception as error:
        raise FedmuxError(place + first_line(error)) from error


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
            **asdict(Objective.of(settings)),
        )
        for number, (task, settings) in enumerate(zip(setting.tasks, experiment.tasks))
    }


def _itself(value: Any) -> Any:
    return value
