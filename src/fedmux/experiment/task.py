"""`[[task]]`: one of the models to train, and its learning rate."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    model_validator,
)

from fedmux.data import Dataset, from_arrays
from fedmux.data.partition import Iid, Partition
from fedmux.data.sources import FUNCTION
from fedmux.experiment.callables import REMEDY, NameOrCallable, refuse_what_is_lost, written
from fedmux.experiment.metric import MetricChoice, metric_of
from fedmux.experiment.settings import Name, Settings
from fedmux.privacy import Privacy
from fedmux.runs.scale import ACCURACIES, ACCURACY, Scale, default_metric


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
    if value == ARRAYS:
        raise ValueError(f"was passed as arrays; {REMEDY}")
    if isinstance(value, str):
        refuse_what_is_lost(value)
        return value
    if isinstance(value, Dataset) or callable(value):
        return value
    if isinstance(value, tuple | list) and len(value) in (2, 4):
        return from_arrays(*value)
    raise ValueError(
        f"should be a source's name, a path to .npz, module:function, arrays (x, y) or {FUNCTION}; "
        f"got {type(value).__name__}"
    )


def _partition(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Data = Annotated[
    Any,
    BeforeValidator(_data),
    PlainSerializer(lambda value: ARRAYS if isinstance(value, Dataset) else written(value), when_used="json"),
]


class TaskSettings(Settings):
    """One of the models to train."""

    name: Name = Field(description="unique name; letters, digits, `.`, `_`, `-`")
    data: Data = Field(
        description="a source (`fedmux data list`), a path to `.npz`, or `module:function`, which takes no "
        "arguments and returns `(x, y)`, `(x, y, test_x, test_y)` or a `fedmux.Dataset`; in Python also the "
        "function or the arrays themselves"
    )
    model: NameOrCallable = Field(
        description="`cnn`, `cnn-small`, `mlp`, `resnet18`, `char-lstm`, or `module:Class`, a "
        "`torch.nn.Module` or a function that returns one, called with `model_options` and, where it has "
        "parameters of these names, `input_shape` and `outputs`; in Python also the class or function itself"
    )
    model_options: dict[str, Any] = Field({}, description="keyword arguments of the model")
    loss: NameOrCallable = Field(
        "cross-entropy",
        description="`cross-entropy`, `squared-error`, or `module:function` of `(outputs, targets)` that "
        "returns one value per point, shape `(batch,)`; in Python also the function itself",
    )
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

    @model_validator(mode="after")
    def _named_metric(self) -> Self:
        """Run folders name every metric but accuracy."""
        name = default_metric(self.loss)
        if self.metric is None and name != ACCURACY:
            object.__setattr__(self, "metric", MetricChoice(name=name))
        return self

    @property
    def scored_by(self) -> Any:
        """The metric: its name, or a function."""
        return self.metric.name if self.metric else ACCURACY

    @property
    def scale(self) -> Scale:
        return self.metric.scale() if self.metric else ACCURACIES
