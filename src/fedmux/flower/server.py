"""The ServerApp: the same rounds as in a simulation, over the nodes of a SuperLink.

The run's configuration names the experiment file (`experiment`) and the run folder (`output`), and gives the
`Terms`. An output folder that holds a run is resumed.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from pydantic import BaseModel, ConfigDict, Field

from fedmux.dynamics import Presence
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.flower.fleet import FlowerFleet
from fedmux.flower.journal import FlowerJournal
from fedmux.flower.objective import Objective
from fedmux.flower.operator import Operator
from fedmux.flower.post import Post
from fedmux.flower.roster import Roster
from fedmux.flower.tasks import FlowerTask, How, check, from_experiment
from fedmux.importing import first_line
from fedmux.methods import options
from fedmux.population import Population
from fedmux.runs.atomic import write_atomically
from fedmux.runs.layout import CLIENTS, EVENTS, EXPERIMENT, POPULATION, RELEASES
from fedmux.runs.reading import Run, read_population
from fedmux.runs.rounds import Round
from fedmux.runs.scale import Scale
from fedmux.runs.state import AGAIN
from fedmux.runs.writing import RunFolder
from fedmux.tasks.task import Task
from fedmux.training.assembly import local_sgd
from fedmux.training.running import to_resume
from fedmux.training.setting import Setting
from fedmux.training.training import Observer, Training


class Terms(BaseModel):
    """What the server asks of its clients, and how it is watched; keys of the run's configuration."""

    model_config = ConfigDict(
        frozen=True, alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True
    )

    deadline: float = Field(300.0, gt=0, le=1e7, description="seconds that a client has to answer")
    minimum_clients: int = Field(1, ge=1, description="that each round waits for")
    wait: float = Field(180.0, ge=0, le=1e7, description="seconds to wait for them")
    largest_norm: float = Field(
        1e6, gt=0, allow_inf_nan=False, description="of an update; longer ones are refused"
    )
    metrics_port: int = Field(-1, ge=-1, lt=2**16, description="of /metrics and /health; -1: none, 0: any")
    metrics_host: str = "127.0.0.1"

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "Terms":
        """From a run's configuration, in which the app may have keys of its own."""
        return validated(cls, dict(config), "the run's configuration")


@dataclass(frozen=True, eq=False)
class Connected(Setting):
    """A setting whose population is the clients that are connected."""

    meet: Callable[[], Population] = field(kw_only=True)
    roster: Roster = field(kw_only=True)
    file: Path = field(kw_only=True)

    def in_round(self, round: int) -> Population:
        """Who is there; new clients are recorded at once."""
        before = self.roster.population
        now = self.meet()
        if self.roster.population is not before:
            self.keep()
        return now

    def keep(self) -> None:
        replace(self, population=self.roster.population).save(self.file)

    @property
    def constant(self) -> bool:
        return False

    def changes(self) -> dict[str, list[Any]]:
        return self.roster.changes()


def server_app(tasks: Mapping[str, FlowerTask] | None = None) -> ServerApp:
    """A ServerApp that trains an experiment; by default on the tasks that the experiment file describes."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        experiment = Experiment.read(str(config["experiment"]))
        output = Path(str(config["output"]))
        serve(grid, experiment, tasks or from_experiment(experiment), output, Terms.read(config))

    return app


def serve(
    grid: Grid,
    experiment: Experiment,
    given: Mapping[str, FlowerTask],
    output: Path,
    terms: Terms,
) -> Run:
    """Train on real clients; resumes a run that the output folder holds."""
    torch.set_num_threads(1)
    check(experiment)
    if terms.minimum_clients > experiment.population.clients:
        raise FedmuxError(
            f"minimum-clients = {terms.minimum_clients} is more than population.clients = "
            f"{experiment.population.clients}"
        )
    tasks = [_task(experiment, given, number) for number in range(len(experiment.tasks))]
    record = _record(experiment, output)
    if record is None:
        _print(f"{output}: is finished already")
        return Run(output)
    operator = Operator(
        output / EVENTS,
        host=terms.metrics_host,
        port=None if terms.metrics_port < 0 else terms.metrics_port,
        patience=4 * terms.deadline + terms.wait + 60,  # a round: hello, two rounds of signals, training
    )

    def notice(line: str) -> None:
        operator.event("notice", text=line)
        _print(line)

    try:
        with record, operator:
            if operator.port is not None:
                notice(f"metrics: http://{operator.host}:{operator.port}/metrics")
            _train(grid, experiment, tasks, record, terms, operator, notice)
    except Exception as error:
        operator.event("stopped", reason=first_line(error))
        raise
    return Run(output)


def _train(
    grid: Grid,
    experiment: Experiment,
    tasks: list[Task],
    record: RunFolder,
    terms: Terms,
    operator: Operator,
    notice: Callable[[str], None],
) -> None:
    fleet = _fleet(grid, experiment, tasks, record.path, terms, operator)
    begun: list[Training] = []

    def meet() -> Population:
        try:
            return _gather(fleet, terms, operator, notice)
        except FedmuxError:
            if begun:
                begun[0].save()  # between two rounds, so that none is done again
            raise

    method = options(experiment.method)["name"]
    operator.describe(
        experiment=experiment.name, method=method, seed=experiment.seed, rounds=experiment.rounds
    )
    meet()
    notice(f"{len(fleet.roster.nodes)} clients are there")
    setting = _setting(experiment, tasks, fleet.roster, meet, record.path / POPULATION)
    observers: list[Observer] = [
        operator.round,
        lambda entry: notice(_line(entry, experiment.rounds, experiment.scales)),
    ]
    training = Training(experiment, setting, record, observers, fleet=fleet)
    training.start(notice)
    begun.append(training)
    if training.state.round:
        operator.resumed(training.state.round)
        notice(f"continuing after round {training.state.round}")
    training.loop(lambda: False)
    operator.event("finished", rounds=training.state.round)


def _fleet(
    grid: Grid, experiment: Experiment, tasks: list[Task], run: Path, terms: Terms, operator: Operator
) -> FlowerFleet:
    """A fleet that knows what earlier processes left in the run folder."""
    clients, names = experiment.population.clients, [task.name for task in tasks]
    journal = FlowerJournal(clients, len(tasks), run / RELEASES, operator.failure)
    roster = Roster(names, clients, journal, run / CLIENTS, _people(run / POPULATION))
    post = Post(grid, terms.deadline)
    objectives = [Objective.of(settings) for settings in experiment.tasks]
    return FlowerFleet(post, tasks, experiment.seed, roster, journal, terms.largest_norm, objectives)


def _setting(
    experiment: Experiment, tasks: list[Task], roster: Roster, meet: Callable[[], Population], file: Path
) -> Connected:
    clients, names = experiment.population.clients, [task.name for task in tasks]
    presence = Presence(clients, names, experiment.seed, clients, [], None, None, None)
    return Connected(roster.population, tasks, [], presence, meet=meet, roster=roster, file=file)


def _task(experiment: Experiment, given: Mapping[str, FlowerTask], number: int) -> Task:
    settings = experiment.tasks[number]
    if settings.name not in given:
        raise FedmuxError(f'task "{settings.name}" of the experiment is not among the app\'s tasks')
    how = How(local_sgd(settings), settings.learning_rate, settings.privacy, Objective.of(settings))
    return given[settings.name].server_task(settings.name, how)


def _record(experiment: Experiment, output: Path) -> RunFolder | None:
    """The folder of a new run or of an unfinished one; None if the run is finished."""
    again = os.environ.get(AGAIN)
    if not (output / EXPERIMENT).exists():
        if not output.exists() or not any(output.iterdir()):
            output.mkdir(parents=True, exist_ok=True)
            write_atomically(output / CLIENTS, b"{}")
        return RunFolder.create(output, experiment.table(), again)
    if not (output / CLIENTS).exists():
        raise FedmuxError(f"{output}: holds a simulated run; choose another output")
    if to_resume(output, experiment, {}) is None:
        return None
    record = RunFolder(output, again)
    record.lock()
    return record


def _people(file: Path) -> Population | None:
    """What an earlier process knew about its clients."""
    if not file.exists():
        return None
    arrays = read_population(file.parent)
    if lacking := {"capacity", "sizes", "eligible"} - arrays.keys():
        raise FedmuxError(f"{file}: lacks {min(lacking)}; restore it, or begin anew with another output")
    return Population(arrays["capacity"], arrays["sizes"], arrays["eligible"])


def _line(entry: Round, rounds: int, scales: Mapping[str, Scale]) -> str:
    scores = [
        f"{name} {scales[name].show(task.score)}"
        for name, task in entry.tasks.items()
        if task.score is not None
    ]
    return f"round {entry.round}/{rounds}  {'  '.join(scores)}"


def _print(line: str) -> None:
    print(line, flush=True)  # into the log that Flower streams


def _gather(
    fleet: FlowerFleet, terms: Terms, operator: Operator, notice: Callable[[str], None]
) -> Population:
    """Who can train, once enough clients are there and one is free."""
    end, waiting, least = time.monotonic() + terms.wait, False, terms.minimum_clients
    while True:
        people, there = fleet.meet(), len(fleet.roster.nodes)
        operator.present(there)
        if there >= least and people.available.any():
            return people
        if not waiting:
            notice(f"{there} clients are there; waiting for at least {least}, one of them free")
        waiting = True
        if time.monotonic() > end:
            raise FedmuxError(
                f"only {there} of at least {least} clients came within {terms.wait:g} s; "
                "run the app again with the same output when they are there"
            )
        time.sleep(1)
