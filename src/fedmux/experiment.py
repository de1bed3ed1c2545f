"""The validated description of a run, from a TOML file or from Python.

Unknown keys, wrong types and impossible values are refused before any work starts. Every field carries a
description: `docs/experiment-file.md` is generated from them.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from fedmux.allocation.plan import Budget
from fedmux.data.dataset import Dataset
from fedmux.data.partition import Iid, Partition
from fedmux.dynamics import Absence, Dropout, Event, Process, Stragglers
from fedmux.fleet.engine import Local, Precision
from fedmux.importing import closest
from fedmux.methods import Method, find, options
from fedmux.privacy import Privacy
from fedmux.recruitment import MECHANISMS
from fedmux.recruitment.bids import BidLaw
from fedmux.tasks.losses import default_metric


class Settings(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, populate_by_name=True
    )


def _check_shares(value: Any, allowed: Sequence[str]) -> None:
    if unknown := [key for key in value if key not in allowed]:
        raise ValueError(f'has no share "{unknown[0]}"; give {", ".join(allowed)}')
    if any(isinstance(v, bool) or not isinstance(v, int | float) or v < 0 for v in value.values()):
        raise ValueError("shares must be numbers of at least 0")
    if abs(sum(value.values()) - 1) > 1e-9:
        raise ValueError(f"shares must add up to 1, they add up to {sum(value.values()):g}")


def _check_processors(value: Any) -> Any:
    if isinstance(value, dict):
        _check_shares(value, ("all", "half", "one"))
    elif isinstance(value, list):
        if any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in value):
            raise ValueError("a list must hold one whole number of at least 0 for each client")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("should be a whole number of at least 1, a list, or shares {all, half, one}")
    return value


def _check_availability(value: Any) -> Any:
    if isinstance(value, dict):
        _check_shares(value, ("all", "all_but_one"))
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError("should be a number above 0 and up to 1, or shares {all, all_but_one}")
    return value


class PopulationSettings(Settings):
    """The fleet: how many clients, what they can do, how much is trained a round."""

    clients: int = Field(ge=1, description="number of clients N, those included that join later")
    start: int | None = Field(None, ge=1, description="clients there from the beginning; default all")
    jobs: float | None = Field(None, gt=0, description="jobs a round m, an expectation; instead of `rate`")
    rate: float | None = Field(
        None, gt=0, le=1, description="share of the processors (or clients) trained a round; default 0.1"
    )
    processors: Annotated[int | list[int] | dict[str, float], BeforeValidator(_check_processors)] = Field(
        1,
        description="jobs a client can do at once: a number, one number each, or shares `{all, half, one}` "
        "of the clients with as many as they have tasks, half as many (rounded up), or one",
    )
    availability: Annotated[float | dict[str, float], BeforeValidator(_check_availability)] = Field(
        1.0,
        description="which client has which task: the probability of each pair, or shares "
        "`{all, all_but_one}` of the clients",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "PopulationSettings":
        if self.jobs is not None and self.rate is not None:
            raise ValueError("jobs and rate exclude each other; remove one")
        if self.start is not None and self.start > self.clients:
            raise ValueError(f"start must be at most clients = {self.clients}, got {self.start}")
        if isinstance(self.processors, list) and len(self.processors) != self.clients:
            raise ValueError(f"processors lists {len(self.processors)} numbers for {self.clients} clients")
        return self

    @property
    def budget(self) -> Budget:
        return Budget(self.jobs, 0.1 if self.jobs is None and self.rate is None else self.rate)


class LearningRate(Settings):
    """A client's step size by round t = 0, 1, ..."""

    initial: float = Field(gt=0, description="learning rate of the first round")
    schedule: Literal["constant", "inverse", "step"] = Field(
        "constant",
        description="`constant`; `inverse`: initial * offset / (t + offset); "
        "`step`: initial * factor^(t // every)",
    )
    offset: float = Field(10.0, gt=0, description="of `inverse`")
    every: int = Field(50, ge=1, description="of `step`: rounds between two steps")
    factor: float = Field(0.5, gt=0, le=1, description="of `step`")

    def __call__(self, round: int) -> float:
        if self.schedule == "inverse":
            return self.initial * self.offset / (round + self.offset)
        if self.schedule == "step":
            return float(self.initial * self.factor ** (round // self.every))
        return self.initial


ARRAYS = "<arrays>"  # stands in a run folder for data that has no name


def _rate(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"initial": value}
    if not isinstance(value, dict | LearningRate):
        raise ValueError("should be a number, or a table with initial and schedule")
    return value


def _data(value: Any) -> Any:
    from fedmux.data import from_arrays

    if value == ARRAYS:
        raise ValueError("was given as arrays in Python; resume there: fedmux.resume(folder, experiment=...)")
    if isinstance(value, str | Dataset):
        return value
    if isinstance(value, tuple | list) and len(value) in (2, 4):
        return from_arrays(*(np.asarray(v) for v in value))
    raise ValueError("should be a source's name, a path to .npz, module:function, or arrays (x, y)")


def _partition(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Data = Annotated[
    Any,
    BeforeValidator(_data),
    PlainSerializer(lambda value: value if isinstance(value, str) else ARRAYS, when_used="json"),
]


class TaskSettings(Settings):
    """One of the models that are trained."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="unique name; letters, digits, `.`, `_`, `-`"
    )
    data: Data = Field(
        description="a source (`fedmux data list`), a path to `.npz`, `module:function`, or arrays in Python"
    )
    model: str = Field(description="`cnn`, `cnn-small`, `mlp`, `resnet18`, `char-lstm`, or `module:Class`")
    model_options: dict[str, Any] = Field({}, description="keyword arguments of the model")
    loss: str = Field("cross-entropy", description="`cross-entropy`, `squared-error`, or `module:function`")
    loss_options: dict[str, Any] = Field({}, description="of the loss, such as `{label_smoothing = 0.1}`")
    metric: str | None = Field(
        None,
        description="score of a point, higher is better: `accuracy`, `negative-squared-error`, or "
        "`module:function`; default by loss",
    )
    partition: Annotated[Partition, BeforeValidator(_partition)] = Field(
        Iid(), description="how the training points are divided over the clients"
    )
    learning_rate: Annotated[LearningRate, BeforeValidator(_rate)] = Field(
        description="a number, or a table with a schedule"
    )
    batch_size: int = Field(32, ge=1, description="points of a mini-batch")
    local_epochs: int = Field(5, ge=1, description="passes of a client over its points in a job")
    momentum: float = Field(0.0, ge=0, lt=1, description="of local SGD, from zero in each job")
    weight_decay: float = Field(0.0, ge=0, description="of local SGD")
    cost: float = Field(1.0, gt=0, description="of a job, in units of the budget, for methods that weigh it")
    units: float = Field(
        1.0,
        ge=1,
        description="what a job takes of a processor: a client's expected load stays within its processors, "
        "for methods that weigh it",
    )
    clip: float | None = Field(None, gt=0, description="largest gradient norm of a local step")
    privacy: Privacy | None = Field(
        None, description="clipping and noise on whole updates before they leave a client; default neither"
    )
    initial_weights: str | None = Field(None, description="a `.safetensors` file to start from")


class Evaluation(Settings):
    """When and on what the global models are scored."""

    every: int = Field(1, ge=1, description="rounds between evaluations; the last round always is one")
    samples: int | None = Field(None, ge=2, description="use at most this many held-out points of each task")
    validation_share: float = Field(
        0.3,
        gt=0,
        lt=1,
        description="part of the held-out points that allocators may look at; the rest is reported",
    )
    report: Literal["test", "validation"] = Field(
        "test",
        description="what metrics and summary report: the rest of the held-out points, or the validation "
        "part, for choosing learning rates and the like without a look at what will be reported",
    )
    clients: bool = Field(True, description="also score the models on each client's own points")
    thresholds: list[float] = Field(
        [0.5, 0.6, 0.7, 0.8, 0.9], description="accuracies whose first round is reported"
    )


class Stop(Settings):
    """When to stop before the last round, and what happens when a task diverges."""

    accuracy: float | None = Field(
        None,
        gt=0,
        le=1,
        description="stop once every task that is still trained has this accuracy on the validation part",
    )
    divergence: Literal["pause", "retry", "stop"] = Field(
        "pause",
        description="what becomes of a task that diverges: `pause`: it goes back to its last sound model and "
        "gets no more jobs, the others go on; `retry`: it goes back and on with half the learning rate, "
        "`retries` times, then it pauses; `stop`: the run ends",
    )
    retries: int = Field(3, ge=1, description="of `retry`: how often a task's learning rate is halved")


def _check_mechanism(value: str) -> str:
    if value not in MECHANISMS:
        raise ValueError(f"should be one of {', '.join(MECHANISMS)}{closest(value, MECHANISMS)}")
    return value


def _laws(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class RecruitmentSettings(Settings):
    """An auction before training: who takes part in which task, and for how much."""

    mechanism: Annotated[str, AfterValidator(_check_mechanism)] = Field(
        description=f"one of {', '.join(f'`{name}`' for name in MECHANISMS)}"
    )
    budget: float = Field(
        ge=0, allow_inf_nan=False, description="for all tasks together; for `posted-price` the price"
    )
    bids: Annotated[
        Annotated[str, Tag("file")] | Annotated[list[BidLaw], Field(min_length=1), Tag("laws")],
        Discriminator(lambda value: "file" if isinstance(value, str) else "laws"),
    ] = Field(
        description="a CSV file with a column for each task and a line for each client, or a distribution "
        "for all tasks, or a list with one for each task"
    )

    _normal = field_validator("bids", mode="before")(_laws)


def _check_workers(value: Any) -> Any:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError('should be a whole number of at least 1, or "auto"')
    return value


class Execution(Settings):
    """How the simulator computes; nothing here changes what is computed, but for rounding."""

    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="`cpu`, `cuda`, `cuda:1`; `auto`: a GPU if there is one",
    )
    precision: Precision = Field(
        "tf32",
        description="of a GPU's forward and backward passes: `fp32`, `tf32`, or `bf16` (a CPU's too); "
        "weights and sums stay float32",
    )
    local: Local = Field(
        "auto",
        description="clients one after the other (`loop`) or many at once (`stacked`); "
        "`auto`: stacked on a GPU",
    )
    workers: Annotated[int | Literal["auto"], BeforeValidator(_check_workers)] = Field(
        1, description="processes on this machine; `auto`: one a core, or one a GPU"
    )


def _seconds(text: str) -> float | None:
    """What "90 s", "10 min" or "2 h" stands for; None if it is nothing of the kind."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", text)
    return float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]] if found else None


def _check_interval(value: Any) -> Any:
    if isinstance(value, str) and _seconds(value):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError('should be a whole number of rounds, at least 1, or a time: "90 s", "10 min", "2 h"')
    return value


class Output(Settings):
    """What is kept, and where."""

    folder: str | None = Field(None, description="run folder; default `runs/<name>-<time>`, or `-o`")
    checkpoint_every: Annotated[int | str, BeforeValidator(_check_interval)] = Field(
        5, description='rounds between checkpoints, or a time such as `"10 min"`; the last two are kept'
    )

    @property
    def checkpoint_seconds(self) -> float | None:
        """None: it is a number of rounds."""
        return _seconds(self.checkpoint_every) if isinstance(self.checkpoint_every, str) else None


def _method(value: Any) -> Any:
    """A name, a table with a name, or a Method; options are checked here so that errors name the key."""
    from fedmux.problems import problems

    if isinstance(value, Method):
        return value
    table = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, dict) else {}
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise ValueError('should be a name, or a table with a name, such as {name = "random"}')
    kind = find(name)
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise ValueError("; ".join(problems(error, kind))) from None


MethodChoice = Annotated[Method, BeforeValidator(_method), PlainSerializer(options)]


def _check_methods(methods: list[str | dict[str, Any]]) -> list[str | dict[str, Any]]:
    for method in methods:
        _method({k: v for k, v in method.items() if k != "label"} if isinstance(method, dict) else method)
    return methods


class Comparison(Settings):
    """What `fedmux compare` runs from this file when the command line does not say."""

    methods: Annotated[list[str | dict[str, Any]], AfterValidator(_check_methods)] = Field(
        [], description="methods, by name or as tables with options and, if wanted, a `label`"
    )
    seeds: list[int] = Field([], description="seeds; default the experiment's own")
    baseline: str | None = Field(None, description="the method that others are set against")


class Experiment(Settings):
    """Several models trained over one fleet by one method."""

    name: str = Field(
        "experiment", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="names the run folder"
    )
    rounds: int = Field(ge=1, description="rounds to train")
    seed: int = Field(0, ge=0, lt=2**63, description="every random draw follows from it")
    method: MethodChoice = Field(
        description="who trains what and how it is combined: a name, or a table with options"
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
    compare: Comparison = Comparison()

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        names = [task.name for task in self.tasks]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f'two tasks are named "{min(twice)}"; names must differ')
        for event in self.events:
            for name in (*event.join_tasks, *event.leave_tasks):
                if name not in names:
                    raise ValueError(f'[[event]] of round {event.round}: there is no task "{name}"')
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
        self.method.fitted(self.metrics)
        return self

    @property
    def metrics(self) -> dict[str, str]:
        """What each task is scored by."""
        return {task.name: task.metric or default_metric(task.loss) for task in self.tasks}

    @classmethod
    def read(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Experiment":
        """From a TOML file, with `key=value` overrides; FedmuxError names file, key and remedy."""
        from fedmux.problems import read_toml, validated

        return validated(cls, read_toml(path, overrides), str(path))

    def executed(self, execution: Mapping[str, Any]) -> "Experiment":
        """The same experiment with some of [execution] changed."""
        from fedmux.problems import validated

        table = {**self.execution.model_dump(), **execution}
        return self.model_copy(update={"execution": validated(Execution, table, "[execution]")})

    def table(self) -> dict[str, Any]:
        """The whole configuration as it would stand in a file."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
