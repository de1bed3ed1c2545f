"""The ServerApp: the same rounds as in a simulation, over the nodes of a SuperLink.

The run's configuration says where the experiment file is and where the run goes: `experiment`, `output`, and
`deadline`, `minimum-clients`, `wait` in seconds. An output folder that holds a run is resumed.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedmux.assembly import Setting
from fedmux.dynamics import Presence
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.flower.fleet import FlowerFleet
from fedmux.flower.tasks import FlowerTask, check, from_experiment
from fedmux.population import Population
from fedmux.record import Run, RunFolder
from fedmux.tasks.task import LocalSgd
from fedmux.training import Training


@dataclass(frozen=True, eq=False)
class Connected(Setting):
    """A setting whose population is whoever is connected."""

    meet: Callable[[], Population] = field(kw_only=True)

    def in_round(self, round: int) -> Population:
        return self.meet()


def _say(line: str) -> None:
    print(line, flush=True)  # into the log that Flower streams


def server_app(tasks: Mapping[str, FlowerTask] | None = None) -> ServerApp:
    """A ServerApp that trains an experiment; without tasks, those that the experiment file describes."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        experiment = Experiment.read(str(config["experiment"]))
        serve(
            grid,
            experiment,
            tasks or from_experiment(experiment),
            Path(str(config["output"])),
            deadline=float(config.get("deadline", 300)),
            minimum=int(config.get("minimum-clients", 1)),
            wait=float(config.get("wait", 60)),
        )

    return app


def serve(
    grid: Grid,
    experiment: Experiment,
    tasks: Mapping[str, FlowerTask],
    output: Path,
    *,
    deadline: float,
    minimum: int,
    wait: float,
    notice: Callable[[str], None] = _say,
) -> Run:
    """Train on real clients; resumes a run that the output folder holds."""
    torch.set_num_threads(1)
    check(experiment)
    described = []
    for settings in experiment.tasks:
        if settings.name not in tasks:
            raise FedmuxError(f'task "{settings.name}" of the experiment is not among the app\'s tasks')
        local = LocalSgd(
            settings.batch_size,
            settings.local_epochs,
            settings.momentum,
            settings.weight_decay,
            settings.clip,
        )
        described.append(tasks[settings.name].server_task(settings.name, local, settings.learning_rate))
    fleet = FlowerFleet(grid, described, experiment.population.clients, experiment.seed, deadline)
    _gather(fleet, minimum, wait, notice)
    names = [task.name for task in described]
    clients = experiment.population.clients
    presence = Presence(clients, names, experiment.seed, clients, [], None, None, None)
    setting = Connected(fleet.population, described, [], presence, meet=fleet.meet)
    if (output / "experiment.toml").exists():
        record = RunFolder(output)
        record.lock()
    else:
        record = RunFolder.create(output, experiment.table())
    try:
        training = Training(experiment, setting, record, [partial(_tell, experiment, notice)], fleet=fleet)
        training.start(notice)
        training.loop(lambda: False)
    finally:
        record.close()
    return Run(output)


def _tell(experiment: Experiment, notice: Callable[[str], None], metrics: dict[str, Any]) -> None:
    scored = {name: v["accuracy"] for name, v in metrics["tasks"].items() if "accuracy" in v}
    text = "  ".join(f"{name} {accuracy:.1%}" for name, accuracy in scored.items())
    notice(f"round {metrics['round']}/{experiment.rounds}  {text}")


def _gather(fleet: FlowerFleet, minimum: int, wait: float, notice: Callable[[str], None]) -> None:
    """Wait until enough clients are there, and say so if they are not."""
    end = time.monotonic() + wait
    while (there := int(fleet.meet().available.any(1).sum())) < minimum:
        if time.monotonic() > end:
            raise FedmuxError(f"only {there} of at least {minimum} clients came within {wait:g} s")
        time.sleep(1)
    notice(f"{there} clients are there")
