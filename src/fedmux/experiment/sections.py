"""The sections for evaluation, stopping, recruitment, execution, output and comparisons."""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationError,
    field_validator,
)

from fedmux.experiment.callables import refuse_what_is_lost
from fedmux.experiment.settings import Settings
from fedmux.importing import closest
from fedmux.methods import Method, find, options
from fedmux.recruitment import MECHANISMS
from fedmux.recruitment.bids import BidLaw
from fedmux.settings.mistakes import problems

Precision = Literal["fp32", "tf32", "bf16"]
Local = Literal["auto", "loop", "stacked"]


class Evaluation(Settings):
    """When the global models are evaluated, and on which data."""

    every: int = Field(1, ge=1, description="rounds between evaluations; the last round is always evaluated")
    samples: int | None = Field(None, ge=2, description="use at most this many held-out points per task")
    validation_share: float = Field(
        0.3,
        gt=0,
        lt=1,
        description="share of the held-out points in the validation part, which allocators may use; the rest "
        "is the test part",
    )
    report: Literal["test", "validation"] = Field(
        "test",
        description="held-out points behind the figures in metrics and summary: the test part, or the "
        "validation part, for tuning hyperparameters without looking at the test part",
    )
    clients: bool = Field(True, description="also evaluate the models on each client's own points")
    thresholds: list[float] = Field(
        [0.5, 0.6, 0.7, 0.8, 0.9], description="accuracies; the first round to reach each is reported"
    )


class Stop(Settings):
    """When to stop early, and what to do when a task diverges."""

    accuracy: float | None = Field(
        None,
        gt=0,
        le=1,
        description="stop once every task still in training has this accuracy on the validation part",
    )
    divergence: Literal["pause", "retry", "stop"] = Field(
        "pause",
        description="what happens to a task that diverges. `pause`: it returns to its last sound model and "
        "gets no more jobs, while the others continue; `retry`: it continues from that model at half the "
        "learning rate, up to `retries` times, then pauses; `stop`: the run ends",
    )
    retries: int = Field(3, ge=1, description="for `retry`: how often a task's learning rate may be halved")


def _check_mechanism(value: str) -> str:
    if value not in MECHANISMS:
        raise ValueError(f"should be one of {', '.join(MECHANISMS)}{closest(value, MECHANISMS)}")
    return value


def _laws(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class RecruitmentSettings(Settings):
    """An auction before training: which clients join which tasks, and at what price."""

    mechanism: Annotated[str, AfterValidator(_check_mechanism)] = Field(
        description=f"one of {', '.join(f'`{name}`' for name in MECHANISMS)}"
    )
    budget: float = Field(ge=0, description="total budget over all tasks; for `posted-price`, the price")
    bids: Annotated[
        Annotated[str, Tag("file")] | Annotated[list[BidLaw], Field(min_length=1), Tag("laws")],
        Discriminator(lambda value: "file" if isinstance(value, str) else "laws"),
    ] = Field(
        description="a CSV file with a column per task and a row per client, a distribution for all tasks, "
        "or a list with one distribution per task"
    )

    _normal = field_validator("bids", mode="before")(_laws)


def _check_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
        raise ValueError("should be auto, cpu, cuda, or one of several GPUs, such as cuda:1")
    return value


def _check_workers(value: Any) -> Any:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError('should be a whole number of at least 1, or "auto"')
    return value


class Execution(Settings):
    """How the simulator computes; nothing here changes the results, except for rounding."""

    device: Annotated[str, AfterValidator(_check_device)] = Field(
        "auto",
        description="`cpu`, `cuda`, `cuda:1`, or `auto`: a GPU if there is one",
    )
    precision: Precision = Field(
        "tf32",
        description="precision of forward and backward passes on a GPU: `fp32`, `tf32` or `bf16` (`bf16` "
        "also on a CPU); weights and sums stay float32",
    )
    local: Local = Field(
        "auto",
        description="train clients one at a time (`loop`) or many at once (`stacked`); "
        "`auto`: `stacked` on a GPU, else `loop`",
    )
    workers: Annotated[int | Literal["auto"], BeforeValidator(_check_workers)] = Field(
        1, description="processes on this machine; `auto`: one per core, or one per GPU"
    )


def _seconds(text: str) -> float | None:
    """Seconds in "90 s", "10 min" or "2 h"; None if the text is not a time."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", text)
    return float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]] if found else None


def _check_interval(value: Any) -> Any:
    if isinstance(value, str) and _seconds(value):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError('should be a whole number of rounds, at least 1, or a time: "90 s", "10 min", "2 h"')
    return value


class Output(Settings):
    """Where the run is saved, and how often."""

    folder: str | None = Field(None, description="run folder; default `runs/<name>-<time>`; `-o` overrides")
    checkpoint_every: Annotated[int | str, BeforeValidator(_check_interval)] = Field(
        5, description='rounds between checkpoints, or a time such as `"10 min"`; the last two are kept'
    )

    @property
    def checkpoint_seconds(self) -> float | None:
        """None if the interval is a number of rounds."""
        return _seconds(self.checkpoint_every) if isinstance(self.checkpoint_every, str) else None


def _method(value: Any) -> Any:
    """From a name, a table with a name, or a Method; checks options here so that errors name the key."""
    if isinstance(value, Method):
        return value
    table = dict(value) if isinstance(value, dict) else {"name": value}
    name = table.pop("name", None)
    if isinstance(name, str):
        refuse_what_is_lost(name)
        kind = find(name)
    elif isinstance(name, type) and issubclass(name, Method):
        kind = name
    else:
        raise ValueError(
            'should be a name, a table with a name, such as {name = "random"}, or in Python a fedmux.Method'
        )
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise ValueError("; ".join(problems(error, kind))) from None


MethodChoice = Annotated[Method, BeforeValidator(_method), PlainSerializer(options)]


def _check_methods(methods: list[str | dict[str, Any]]) -> list[str | dict[str, Any]]:
    for method in methods:
        _method({k: v for k, v in method.items() if k != "label"} if isinstance(method, dict) else method)
    return methods


class CompareSettings(Settings):
    """What `fedmux compare` runs from this file unless the command line says otherwise."""

    methods: Annotated[list[str | dict[str, Any]], AfterValidator(_check_methods)] = Field(
        [], description="methods, by name or as tables with options and optionally a `label`"
    )
    seeds: list[int] = Field([], description="seeds; default the experiment's own")
    baseline: str | None = Field(None, description="the method that the others are compared with")
