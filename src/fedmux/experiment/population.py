"""`[population]`: the fleet."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from fedmux.allocation.plan import Budget
from fedmux.experiment.settings import Settings


def _check_shares(value: Any, allowed: Sequence[str]) -> None:
    if unknown := [key for key in value if key not in allowed]:
        raise ValueError(f'has no share "{unknown[0]}"; known: {", ".join(allowed)}')
    if any(isinstance(v, bool) or not isinstance(v, int | float) or not v >= 0 for v in value.values()):
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
    """The fleet: how many clients, what they can do, and how much is trained per round."""

    clients: int = Field(ge=1, description="number of clients N, including any that join later")
    start: int | None = Field(None, ge=1, description="clients present from the beginning; default all")
    jobs: float | None = Field(None, gt=0, description="expected jobs per round m; instead of `rate`")
    rate: float | None = Field(
        None, gt=0, le=1, description="share of the processors (or clients) that train per round; default 0.1"
    )
    processors: Annotated[int | list[int] | dict[str, float], BeforeValidator(_check_processors)] = Field(
        1,
        description="jobs a client can run in a round: one number for all, a list with one number each, or "
        "shares `{all, half, one}` of clients with as many processors as tasks, half as many (rounded up), "
        "or one",
    )
    availability: Annotated[float | dict[str, float], BeforeValidator(_check_availability)] = Field(
        1.0,
        description="which clients have which tasks: the probability of each pair, or shares "
        "`{all, all_but_one}` of clients that have all tasks, or all but one",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "PopulationSettings":
        if self.jobs is not None and self.rate is not None:
            raise ValueError("jobs and rate are mutually exclusive; remove one")
        if self.start is not None and self.start > self.clients:
            raise ValueError(f"start must be at most clients = {self.clients}, got {self.start}")
        if isinstance(self.processors, list) and len(self.processors) != self.clients:
            raise ValueError(f"processors lists {len(self.processors)} numbers for {self.clients} clients")
        return self

    @property
    def budget(self) -> Budget:
        return Budget(self.jobs, 0.1 if self.jobs is None and self.rate is None else self.rate)
