"""A run in progress: round after round, each measured, judged and recorded, until it ends or is stopped."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from fedmux.aggregation import Aggregator
from fedmux.aggregation.aggregator import Workspace
from fedmux.allocation import Allocator
from fedmux.distributed.team import ALONE, Team
from fedmux.dynamics import Returns
from fedmux.errors import FedmuxError, Interrupted
from fedmux.experiment import Experiment
from fedmux.fleet import TRAINED_SIGNALS, Fleet
from fedmux.fleet.engine import Engine
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.model import Model
from fedmux.population import Floats
from fedmux.runs.layout import POPULATION
from fedmux.runs.rounds import Round
from fedmux.runs.writing import RunFolder
from fedmux.training.checkpoints import Checkpoints
from fedmux.training.divergence import Watch
from fedmux.training.driver import Driver
from fedmux.training.guarding import Safeguard
from fedmux.training.measuring import Meter
from fedmux.training.round import Synchronous
from fedmux.training.setting import Setting
from fedmux.training.state import State
from fedmux.training.stopwatch import Stopwatch
from fedmux.training.summary import finished
from fedmux.training.telling import Notice, Teller
from fedmux.training.yardstick import Yardstick

Observer = Callable[[Round], None]  # called after each round with its record


class Training:
    """A run in progress: its state, the parts that move it forward, and its record."""

    def __init__(
        self,
        experiment: Experiment,
        setting: Setting,
        record: RunFolder | None,  # of the team's first process
        observers: Sequence[Observer],
        team: Team = ALONE,
        fleet: Fleet | None = None,  # the simulated one
    ) -> None:
        self.experiment, self.setting, self.team = experiment, setting, team
        self.record, self.observers = record, observers
        method, self.remark = experiment.method.fitted(experiment.scales)
        allocator, aggregator = method.pair()
        self.fleet = fleet or simulated(experiment, setting, allocator, aggregator, team)
        models = [task.layout.read() for task in self.fleet.tasks]
        clients, seed = setting.population.clients, experiment.seed
        returns = Returns(experiment.dropout, clients, seed, experiment.stragglers)
        self.state = State(models, allocator, aggregator, returns, Watch(models))
        own = Path(tempfile.gettempdir()) / f"fedmux-scratch-{os.getpid()}"  # created when needed
        self.scratch = record.path / "scratch" if record else own
        device = models[0].parameters.device
        aggregator.workspace = Workspace(self.scratch, device, team, self.fleet.owned, self.fleet.release)
        self.stopwatch = Stopwatch()
        self.guard = Safeguard(experiment.stop, self.fleet.tasks, self.fleet.journal)
        self.checkpoints = Checkpoints(record, experiment.output, self.fleet.tasks, team)
        self.yardstick = Yardstick(self.fleet)
        parts = (experiment, setting, self.fleet, team, self.guard, self.yardstick, self.stopwatch)
        self.driver: Driver = Synchronous(*parts)
        self.meter = Meter(*parts)
        self.reached = False  # the target accuracy
        if record:
            setting.save(record.path / POPULATION)

    def start(self, notice: Notice) -> None:
        """Start from the newest sound checkpoint, or from the beginning."""
        self.teller = Teller(notice)
        self.fleet.journal.listen(notice)
        checkpoint = self.checkpoints.open(self.fleet.journal)
        self._remark()
        self.teller.tell(self.fleet.journal.take_failures())
        for part in sorted(self._parts()):  # in every process in the same order
            self.yardstick.lay(self.state.models, part)
        self.state.starts = self.yardstick.starts
        if checkpoint is not None:
            self.state.restore(checkpoint, self.fleet.tasks)
            return
        self.state.watch.naive = naive_losses(self.fleet, self.state.models)
        entry = Round(0)
        for s, reason in self.meter.evaluate(entry, self.state, self.setting.population).items():
            raise FedmuxError(
                f'task "{self.fleet.tasks[s].name}": {reason} before any training; check its data, its loss '
                "and initial_weights"
            )
        self._record(entry)

    def loop(self, interrupted: Callable[[], bool]) -> None:
        began = time.perf_counter() - self.state.seconds
        while not self.over:
            self.advance(began)
            stop = self.team.any(interrupted())
            if self.over:
                break
            if stop or self.checkpoints.due(self.state.round):
                self.save()
            if stop:
                where = self.record.path if self.record else "RUN"
                raise Interrupted(
                    f"stopped after round {self.state.round} of {self.experiment.rounds}; "
                    f"`fedmux resume {where}` continues"
                )
        if self.record:
            weights = {t.name: t.weights(model) for t, model in zip(self.fleet.tasks, self.state.models)}
            path, reached = self.record.path, self.reached
            self.record.finish(weights, finished(self.experiment, self.setting, path, self.state, reached))
        shutil.rmtree(self.scratch, ignore_errors=True)

    def advance(self, began: float) -> None:
        """One more round, recorded; `began`: when the first one did, by `time.perf_counter`."""
        entry, jobs = self._round()
        entry.seconds = self.state.seconds = time.perf_counter() - began  # with checkpoints and log
        self._record(entry, jobs)

    def _round(self) -> tuple[Round, np.ndarray]:
        """Play a round, measure it, judge it, report on it."""
        state = self.state
        self.guard.begin()
        self.stopwatch.begin()
        played = self.driver.play(state)
        people = played.view.population
        entry = self.meter.costs(played, state)
        self.guard.judge(state, people, played.deliveries)
        if self.over or state.round % self.experiment.evaluation.every == 0:
            self.reached = self.meter.score(entry, state, people)
        for s, divergence in state.watch.paused.items():
            entry.tasks[self.fleet.tasks[s].name].diverged = divergence.round
        entry.diverged, entry.phases = self.guard.found, self.stopwatch.phases
        entry.failures = self.fleet.journal.take_failures()
        self.teller.tell(entry.failures, entry.diverged)
        return entry, played.deliveries.record(state.round)

    @property
    def over(self) -> bool:
        """The last round is done, the target is reached, or no task is left to train."""
        last = self.state.round >= self.experiment.rounds
        return last or self.reached or bool(self.state.watch.pausing.all())

    def save(self) -> None:
        """Save a checkpoint, between two rounds."""
        self.checkpoints.save(self.state)

    def _parts(self) -> set[str]:
        """Of the held-out points, those on which progress is measured."""
        experiment = self.experiment
        decides = "accuracy" in self.state.allocator.needs or experiment.stop.accuracy is not None
        return {experiment.evaluation.report} | ({"validation"} if decides else set())

    def _remark(self) -> None:
        """Notices that follow from the settings alone."""
        if self.remark:
            self.fleet.journal.notice(self.remark)
        jobs, processors = self.experiment.population.jobs, self.setting.population.total_processors
        if jobs is not None and jobs > processors and all(task.cost == 1 for task in self.experiment.tasks):
            self.fleet.journal.notice(
                f"population.jobs = {jobs:g} is more than the {processors} processors available: all train"
            )

    def _record(self, entry: Round, jobs: np.ndarray | None = None) -> None:
        if self.record:
            self.record.append(entry, jobs)
        for observer in self.observers:
            observer(entry)


def simulated(
    experiment: Experiment, setting: Setting, allocator: Allocator, aggregator: Aggregator, team: Team
) -> Fleet:
    """All clients on this machine, or on the team's. A client with kept state stays with its process."""
    engine = Engine.asked_for(experiment.execution, team)
    sticky = aggregator.remembers or bool(allocator.needs & TRAINED_SIGNALS)
    return SimulatedFleet(setting.tasks, experiment.seed, engine, team, sticky)


def naive_losses(fleet: Fleet, models: list[Model]) -> Floats:
    """S: the loss of all-zero models on a few points; 0 if it cannot be computed."""
    zeros = [Model(torch.zeros_like(model.parameters), model.buffers) for model in models]
    try:
        return np.nan_to_num(fleet.evaluate(zeros, "glance").loss, posinf=0.0, neginf=0.0)
    except Exception:  # a user's module may fail on them
        return np.zeros(len(zeros))
