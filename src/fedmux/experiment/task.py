"""`[[task]]`: one of the models to train, and its learning rate."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
)

from fedmux.data.dataset import Dataset
from fedmux.data.partition import Iid, Partition
from fedmux.experiment.metric import MetricChoice, metric_of
from fedmux.experiment.settings import Settings
from fedmux.privacy import Privacy
from fedmux.runs.scale import Scale, default_metric, scale_of


class LearningRate(Settings):
    """The clients' step size in round t = 0, 1, ..."""

    initial: float = Field(gt=0, description="learning rate of the first round")
    schedule: Literal["constant", "inverse", "step"] = Field(
        "constant",
        description="`constant`; `inverse`: initial * offset / (t + offset); "
        "`step`: initial * factor^(t // every)",
    )
    offset: float = Field(10.0, gt=0, description="for `inverse`: rounds until the rate has halved")
    every: int = Field(50, ge=1, description="for `step`: rounds between two steps")
    factor: float = Field(0.5, gt=0, le=1, description="for `step`: multiplies the rate at each step")

    def __call__(self, round: int) -> float:
        if self.schedule == "inverse":
            return self.initial * self.offset / (round + self.offset)
        if self.schedule == "step":
            return float(self.initial * self.factor ** (round // self.every))
        return self.initial


ARRAYS = "<arrays>"  # in a run folder, in place of data that was given as arrays


def _rate(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"initial": value}
    if not isinstance(value, dict | LearningRate):
        raise ValueError("should be a number, or a table with initial and schedule")
    return value


def _data(value: Any) -> Any:
    from fedmux.data import from_arrays

    if value == ARRAYS:
        raise ValueError("was passed as arrays; resume in Python: fedmux.resume(folder, experiment=...)")
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
    """One of the models to train."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="unique name; letters, digits, `.`, `_`, `-`"
    )
    data: Data = Field(
        description="a source (`fedmux data list`), a path to `.npz`, `module:function`, or arrays in Python"
    )
    model: str = Field(description="`cnn`, `cnn-small`, `mlp`, `resnet18`, `char-lstm`, or `module:Class`")
    model_options: dict[str, Any] = Field({}, description="keyword arguments of the model")
    loss: str = Field("cross-entropy", description="`cross-entropy`, `squared-error`, or `module:function`")
    loss_options: dict[str, Any] = Field(
        {}, description="keyword arguments of the loss, such as `{label_smoothing = 0.1}`"
    )
    metric: Annotated[MetricChoice, BeforeValidator(metric_of)] | None = Field(
        None,
        description="how the task is scored: a name or a table; default `mean-squared-error` with the loss "
        "`squared-error`, else `accuracy`",
    )
    partition: Annotated[Partition, BeforeValidator(_partition)] = Field(
        Iid(), description="how the training points are divided among the clients"
    )
    learning_rate: Annotated[LearningRate, BeforeValidator(_rate)] = Field(
        description="a number, or a table with a schedule"
    )
    batch_size: int = Field(32, ge=1, description="points per mini-batch")
    local_epochs: int = Field(5, ge=1, description="passes over a client's points per job")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of local SGD, reset in each job")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of local SGD")
    cost: float = Field(
        1.0, gt=0, description="cost of a job, in units of the budget, for methods that account for it"
    )
    units: float = Field(
        1.0,
        ge=1,
        description="load of a job on a processor; methods that account for it keep a client's expected load "
        "within its processors",
    )
    clip: float | None = Field(None, gt=0, description="clip gradients of local steps to this norm")
    privacy: Privacy | None = Field(
        None, description="clip whole updates and add noise before they leave a client; default neither"
    )
    initial_weights: str | None = Field(None, description="a `.safetensors` file with weights to start from")

    @property
    def scored_by(self) -> str:
        """The metric's name."""
        return self.metric.name if self.metric else default_metric(self.loss)

    @property
    def scale(self) -> Scale:
        return self.metric.scale() if self.metric else scale_of(None, self.loss)
