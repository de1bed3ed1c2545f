"""The sections of an experiment about clients and tasks that come, go, stay away or do not return."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fedmux.population import Floats


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_who(value: Any) -> Any:
    if isinstance(value, list):
        if any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in value):
            raise ValueError("a list must hold numbers of clients, counted from 0")
    elif isinstance(value, float):
        if not 0 < value <= 1:
            raise ValueError("a share must be above 0 and at most 1")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("should be a number of clients, a list of them, or a share such as 0.1")
    return value


Who = Annotated[int | float | list[int], BeforeValidator(_check_who)]


class Event(_Settings):
    """Something that happens before a round: clients or tasks join or leave."""

    round: int = Field(ge=1, description="the round it comes before, counted from 1")
    join: Who = Field(
        0, description="clients: how many of those absent, which ones, or what share (1.0 is all)"
    )
    leave: Who = Field(0, description="clients: how many of those present, which ones, or what share")
    join_tasks: list[str] = Field([], description="tasks that start; until then they are absent")
    leave_tasks: list[str] = Field([], description="tasks that end; their models are kept as they are")


class Process(_Settings):
    """Clients that come or go at random times: exponential waiting times, some at a time."""

    mean_wait: float = Field(gt=0, description="rounds between two such times, on average")
    clients: int = Field(1, ge=1, description="clients at a time")


class Absence(_Settings):
    """Clients that are away in some rounds and come back."""

    kind: Literal["random", "cycle", "file"] = Field(
        description="`random`: present with probability `present` in each round; `cycle`: present for that "
        "share of every `period` rounds, each client with its own phase; `file`: present only in the "
        "intervals of a CSV file"
    )
    present: float | tuple[float, float] = Field(
        0.8, description="share of rounds a client is present, or a range from which each client has its own"
    )
    period: int = Field(24, ge=2, description="of `cycle`: rounds of a day")
    file: str | None = Field(None, description="of `file`: CSV with the columns client, first, last (rounds)")

    @model_validator(mode="after")
    def _consistent(self) -> "Absence":
        low, high = _ends(self.present)
        if not 0 <= low <= high <= 1:
            raise ValueError("present must lie between 0 and 1, the lower end first")
        if (self.kind == "file") != (self.file is not None):
            raise ValueError('file goes with kind = "file"')
        return self


class Dropout(_Settings):
    """Drawn clients that fail to return their updates."""

    rate: float | tuple[float, float] = Field(
        description="probability that a client drawn in a round does not return, or a range over clients"
    )
    correction: Literal["known", "estimated", "none"] = Field(
        "known",
        description="unbiased weights are divided by the probability to return: `known`, or `estimated` from "
        "the past; `none` leaves the expected step too small. Averages divide by the weight that came back "
        "whatever this says: their steps keep their length and lean towards clients that return",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Dropout":
        low, high = _ends(self.rate)
        if not 0 <= low <= high < 1:
            raise ValueError("rate must be at least 0 and below 1, the lower end first")
        return self


class Stragglers(_Settings):
    """More clients are drawn than are waited for; the first to answer count."""

    over_selection: float = Field(
        gt=1, le=10, description="draw this many times the jobs, take the first answers up to the jobs wanted"
    )
    correction: Literal["share", "estimated"] = Field(
        "share",
        description="unbiased weights are divided by the probability to be in time: `share`: the part of the "
        "clients that could answer that was taken, for clients that are equally fast; `estimated`: each "
        "client's own record, which covers dropouts too",
    )
    spread: float = Field(
        0.0,
        ge=0,
        description="of simulations: standard deviation of the logarithm of clients' mean times; 0: alike",
    )


def _ends(value: float | tuple[float, float]) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def rates(value: float | tuple[float, float], clients: int, rng: np.random.Generator) -> Floats:
    """One number for each client (N): the same, or drawn from a range."""
    return rng.uniform(*_ends(value), clients)
