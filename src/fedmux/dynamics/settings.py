"""The sections of an experiment for clients and tasks that come, go, are absent or drop out."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from fedmux.population import Floats
from fedmux.settings import Checked


def _check_who(value: Any) -> Any:
    if isinstance(value, list):
        if any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in value):
            raise ValueError("a list must hold client numbers, counted from 0")
    elif isinstance(value, float):
        if not 0 < value <= 1:
            raise ValueError("a share must be above 0 and at most 1")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("should be a number of clients, a list of them, or a share such as 0.1")
    return value


Who = Annotated[int | float | list[int], BeforeValidator(_check_who)]


class Event(Checked):
    """Clients or tasks that join or leave before a round."""

    round: int = Field(ge=1, description="the round before which it happens, counted from 1")
    join: Who = Field(
        0, description="absent clients that join: how many, a list of them, or a share (1.0 is all)"
    )
    leave: Who = Field(0, description="present clients that leave: how many, a list of them, or a share")
    join_tasks: list[str] = Field([], description="tasks that start; until then they are absent")
    leave_tasks: list[str] = Field([], description="tasks that end; their models stay as they are")


class Process(Checked):
    """Clients that join or leave at random times, with exponential waiting times in between."""

    mean_wait: float = Field(gt=0, description="mean number of rounds between two arrivals (or departures)")
    clients: int = Field(1, ge=1, description="clients per arrival (or departure)")


class Absence(Checked):
    """Clients that are absent in some rounds and come back."""

    kind: Literal["random", "cycle", "file"] = Field(
        description="`random`: present with probability `present` in each round; `cycle`: present for that "
        "share of every `period` rounds, each client with its own phase; `file`: present only in the "
        "intervals listed in a CSV file"
    )
    present: float | tuple[float, float] = Field(
        0.8,
        description="share of rounds a client is present, or a range from which clients draw their own",
    )
    period: int = Field(24, ge=2, description="for `cycle`: rounds per cycle, such as a day")
    file: str | None = Field(None, description="for `file`: CSV with columns client, first, last (rounds)")

    @model_validator(mode="after")
    def _consistent(self) -> "Absence":
        low, high = _ends(self.present)
        if not 0 <= low <= high <= 1:
            raise ValueError("present must lie between 0 and 1, lower end first")
        if (self.kind == "file") != (self.file is not None):
            raise ValueError('file goes with kind = "file"')
        return self


class Dropout(Checked):
    """Drawn clients that do not return their updates."""

    rate: float | tuple[float, float] = Field(
        description="probability that a drawn client does not return, or a range from which clients draw "
        "their own"
    )
    correction: Literal["known", "estimated", "none"] = Field(
        "known",
        description="unbiased weights are divided by the probability of returning: `known`, or `estimated` "
        "from past rounds; `none`: not divided, so the expected step is too small. Averages ignore this and "
        "divide by the weight that came back: their steps keep their length but favour clients that return",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Dropout":
        low, high = _ends(self.rate)
        if not 0 <= low <= high < 1:
            raise ValueError("rate must be at least 0 and below 1, lower end first")
        return self


class Stragglers(Checked):
    """More clients are drawn than needed; the first to answer count."""

    over_selection: float = Field(
        gt=1, le=10, description="draw this many times the jobs needed, and use the first answers"
    )
    correction: Literal["share", "estimated"] = Field(
        "share",
        description="unbiased weights are divided by the probability of answering in time. `share`: the "
        "fraction of available answers that was used, for equally fast clients; `estimated`: each client's "
        "own record, which covers dropouts too",
    )
    spread: float = Field(
        0.0,
        ge=0,
        description="in simulations: standard deviation of the log of clients' mean times; 0: all alike",
    )


def _ends(value: float | tuple[float, float]) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def rates(value: float | tuple[float, float], clients: int, rng: np.random.Generator) -> Floats:
    """One number per client (N): the same for all, or drawn from a range."""
    return rng.uniform(*_ends(value), clients)
