"""The validated description of a run, from a TOML file or from Python.

Unknown keys, wrong types and impossible values are rejected before any work starts. Every field has a
description: `docs/experiment-file.md` is generated from them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import (
    Field,
    model_validator,
)

from fedmux.dynamics.settings import Absence, Dropout, Event, Process, Stragglers
from fedmux.experiment.mistakes import validated
from fedmux.experiment.overrides import read_experiment
from fedmux.experiment.population import PopulationSettings
from fedmux.experiment.sections import (
    CompareSettings,
    Evaluation,
    Execution,
    MethodChoice,
    Output,
    RecruitmentSettings,
    Stop,
)
from fedmux.experiment.settings import Name, Settings
from fedmux.experiment.task import TaskSettings
from fedmux.runs.scale import Scale


class Experiment(Settings):
    """Several models trained over one fleet by one method."""

    name: Name = Field("experiment", description="also names the run folder")
    rounds: int = Field(ge=1, description="number of rounds to train")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of every random draw")
    method: MethodChoice = Field(
        description="how clients are allocated and updates aggregated: a name, or a table with options; your "
        "own as `module:Class`, in Python also the class of a `fedmux.Method` or an object of it"
    )
    population: PopulationSettings
    tasks: list[TaskSettings] = Field(alias="task", min_length=1)
    events: list[Event] = Field([], alias="event")
    arrivals: Process | None = None
    departures: Process | None = None
    absence: Absence | None = None
    dropout: Dropout | None = None
    stragglers: Stragglers | None = None
    recruitment: RecruitmentSettings | None = None
    evaluation: Evaluation = Evaluation()
    execution: Execution = Execution()
    stop: Stop = Stop()
    output: Output = Output()
    compare: CompareSettings = CompareSettings()

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        names = [task.name for task in self.tasks]
        known = ", ".join(names)
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f'two tasks are named "{min(twice)}"; give each its own name')
        for event in self.events:
            for name in (*event.join_tasks, *event.leave_tasks):
                if name not in names:
                    raise ValueError(
                        f'[[event]] of round {event.round}: there is no task "{name}"; tasks: {known}'
                    )
            for who in (event.join, event.leave):
                if isinstance(who, list) and any(client >= self.population.clients for client in who):
                    raise ValueError(
                        f"[[event]] of round {event.round}: clients are 0..{self.population.clients - 1}"
                    )
        bids = self.recruitment.bids if self.recruitment else []
        if isinstance(bids, list) and len(bids) not in (0, 1, len(self.tasks)):
            raise ValueError(
                f"[recruitment] bids lists {len(bids)} distributions for {len(self.tasks)} tasks"
            )
        self.method.check(len(self.tasks))
        if self.stop.accuracy is not None:
            for name, scale in self.scales.items():
                if scale.target is None:
                    raise ValueError(
                        f'stop.accuracy needs a target for each metric, and "{scale.name}" of task "{name}" '
                        "has none; set metric.target, or leave stop.accuracy out"
                    )
        method, _ = self.method.fitted(self.scales)
        method.pair()
        return self

    @property
    def scales(self) -> dict[str, Scale]:
        """How to read the scores of each task, by name."""
        return {task.name: task.scale for task in self.tasks}

    @classmethod
    def read(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Experiment":
        """From a TOML file, with `key=value` overrides; FedmuxError names the file, the key and the fix."""
        return validated(cls, read_experiment(path, overrides), str(path))

    def executed(self, execution: Mapping[str, Any]) -> "Experiment":
        """The same experiment with some of [execution] changed."""
        table = {**self.execution.model_dump(), **execution}
        return self.model_copy(update={"execution": validated(Execution, table, "[execution]")})

    def table(self) -> dict[str, Any]:
        """The whole configuration as it would be in a file."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
