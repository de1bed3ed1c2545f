"""What moves a run on: a driver takes its state one round further and returns what was played.

`round` has the synchronous driver. Another one stands beside it in a file of its own; `training` chooses.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedmux.allocation import RoundState
from fedmux.allocation.plan import Budget, Plan
from fedmux.distributed.team import Team
from fedmux.experiment import Experiment
from fedmux.fleet import Fleet
from fedmux.population import Bools, Population
from fedmux.tasks.task import Task
from fedmux.training.deliveries import Deliveries
from fedmux.training.guarding import Safeguard
from fedmux.training.setting import Setting
from fedmux.training.state import State
from fedmux.training.stopwatch import Stopwatch
from fedmux.training.yardstick import Yardstick


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What a run has around its state: the same in every round."""

    experiment: Experiment
    setting: Setting
    fleet: Fleet
    team: Team
    guard: Safeguard
    yardstick: Yardstick
    phase: Stopwatch


@dataclass(frozen=True)
class Played:
    """What happened in a round, for measuring and judging it."""

    view: RoundState  # what allocator and aggregator saw
    plan: Plan
    reported: Bools  # N x S: pairs that sent a signal before the draw
    telling: Bools | None  # N x S: pairs that, if drawn, send their loss with the update; None: nobody
    deliveries: Deliveries


class Driver(Protocol):
    def look(self, state: State) -> tuple[RoundState, Bools]:
        """The next round before its draw, as an allocator sees it, and which pairs (N x S) sent signals."""
        ...

    def play(self, state: State) -> Played:
        """One round; `state` is then that after it."""
        ...


def view_of(
    experiment: Experiment, tasks: list[Task], people: Population, budget: Budget, round: int
) -> RoundState:
    """What an allocator may see in a round, without signals."""
    return RoundState(
        round=round,
        rounds=experiment.rounds,
        seed=experiment.seed,
        population=people,
        budget=budget,
        learning_rates=np.array([task.learning_rate(round) for task in tasks]),
        costs=np.array([settings.cost for settings in experiment.tasks]),
        momenta=np.array([task.local.momentum for task in tasks]),
        names=tuple(task.name for task in tasks),
        units=np.array([settings.units for settings in experiment.tasks]),
        noise=np.array([noise_of(task) for task in tasks]),
    )


def noise_of(task: Task) -> float:
    """The norm, up to chance, of the noise in an update of the task."""
    if task.privacy is None:
        return 0.0
    entries = sum(parameter.numel() for parameter in task.layout.parameters.values())
    return task.privacy.clip * task.privacy.noise * math.sqrt(entries)
