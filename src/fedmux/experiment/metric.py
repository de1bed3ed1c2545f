"""A task's `metric`: a name, or a table that says what the scores of a user's own function mean."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedmux.experiment.callables import NameOrCallable
from fedmux.experiment.settings import Settings
from fedmux.runs.scale import KNOWN, Better, Scale, scale_of
from fedmux.tasks.metrics import build_metric

Finite = Annotated[float, Field(allow_inf_nan=False)]


class MetricChoice(Settings):
    """How a task is scored."""

    name: NameOrCallable = Field(
        description=", ".join(f"`{name}`" for name in KNOWN)
        + ", or `module:function` of `(outputs, targets)` that returns one value per point; "
        "in Python also the function itself"
    )
    label: str | None = Field(
        None, min_length=1, max_length=40, description="what a function's scores are called; default its name"
    )
    unit: str | None = Field(
        None, max_length=16, description='such as "°C"; "%" for shares from 0 to 1, shown in per cent'
    )
    better: Better | None = Field(
        None, description="`higher` or `lower`, for a function of your own; default `higher`"
    )
    start: Finite | Literal["first", "constant"] | None = Field(
        None,
        description="where progress is 0: a score, `first` (before any training) or `constant` (the best "
        "constant prediction, such as the majority class); default 0 for accuracy, 0.5 for auc, else `first`",
    )
    target: Finite | None = Field(
        None,
        description="where progress is 1; default the best possible score. A function of your own has none, "
        'unless its unit is "%"; without it there is no mean over tasks',
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        build_metric(self.name)
        if isinstance(self.name, str) and self.name in KNOWN:
            for key in ("label", "better"):
                if getattr(self, key) is not None:
                    raise ValueError(f'{key} is for a function of your own; "{self.name}" has one')
            if KNOWN[self.name].share and self.unit is not None and self.unit != KNOWN[self.name].unit:
                raise ValueError(f'the unit of "{self.name}" is "%"; leave unit out')
        elif self.label in KNOWN:
            raise ValueError(f'label = "{self.label}" is the name of another metric; choose another')
        elif self.start == "constant":
            raise ValueError(f'start = "constant" is not known for "{self.name}"; give the score itself')
        if self.target is not None and self.target == self.start:
            raise ValueError("target should differ from start")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> Any:
        table = {key: value for key, value in handler(self).items() if value is not None}
        return table["name"] if len(table) == 1 else table

    def scale(self) -> Scale:
        return scale_of(self.model_dump(mode="json"))


def metric_of(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) or callable(value) else value
