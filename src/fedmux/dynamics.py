"""Clients and tasks that come and go, clients that are away for a while, and clients that do not return.

All clients and tasks that will ever be there have their place in the arrays from the start; what changes
from round to round is who is present. Everything follows from the seed and the round, so a run can be
resumed anywhere.
"""

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fedmux.errors import FedmuxError
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream, generator


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


@dataclass(eq=False)
class Presence:
    """Who is there in which round. Replays events from the last round asked for, or from the start."""

    clients: int
    tasks: list[str]
    seed: int
    start: int
    events: list[Event]
    arrivals: Process | None
    departures: Process | None
    absence: Absence | None
    round: int = field(default=-1, init=False)  # the last round replayed
    joined: Bools = field(init=False)  # N
    running: Bools = field(init=False)  # S
    changes: dict[str, list[Any]] = field(default_factory=dict, init=False)  # of that round

    def __post_init__(self) -> None:
        self._away = self._trace()
        self._reset()

    def _reset(self) -> None:
        self.round = -1
        self.joined = np.arange(self.clients) < self.start
        later = {name for event in self.events for name in event.join_tasks}
        self.running = np.array([name not in later for name in self.tasks])

    @property
    def constant(self) -> bool:
        """Nothing ever changes."""
        return not (self.events or self.arrivals or self.departures or self.absence) and bool(
            self.joined.all()
        )

    def at(self, round: int) -> tuple[Bools, Bools]:
        """Clients (N) and tasks (S) that are there in a round, counted from 0."""
        if round < self.round:
            self._reset()
        for number in range(self.round + 1, round + 1):
            self._advance(number)
        self.round = round
        return self.joined & ~self._away(round), self.running

    def _advance(self, round: int) -> None:
        before = self.joined.copy(), self.running.copy()
        rng = generator(self.seed, Stream.DYNAMICS, round=round)
        for event in (event for event in self.events if event.round == round + 1):
            self._change(True, event.join, rng)
            self._change(False, event.leave, rng)
            for name in (*event.join_tasks, *event.leave_tasks):
                self.running[self.tasks.index(name)] = name in event.join_tasks
        for process, joins, stream in ((self.arrivals, True, 0), (self.departures, False, 1)):
            if process is not None:
                self._change(joins, process.clients * self._arrivals(process, round, stream), rng)
        self.changes = {
            "joined": np.flatnonzero(self.joined & ~before[0]).tolist(),
            "left": np.flatnonzero(before[0] & ~self.joined).tolist(),
            "tasks_joined": [
                n for n, new, old in zip(self.tasks, self.running, before[1]) if new and not old
            ],
            "tasks_left": [n for n, new, old in zip(self.tasks, self.running, before[1]) if old and not new],
        }

    def _change(self, joins: bool, who: int | float | list[int], rng: np.random.Generator) -> None:
        """Joining takes the absent in order of their numbers; leaving takes the present at random."""
        candidates = np.flatnonzero(self.joined != joins)
        if isinstance(who, list):
            chosen: Ints = np.array(who, np.int64)
        else:
            number = round(who * len(candidates)) if isinstance(who, float) else min(who, len(candidates))
            chosen = candidates[:number] if joins else rng.permutation(candidates)[:number]
        self.joined[chosen] = joins

    def _arrivals(self, process: Process, round: int, stream: int) -> int:
        """How many arrival times of the process fall into a round."""
        times = generator(self.seed, Stream.ARRIVALS, task=stream)
        clock, count = 0.0, 0
        while clock < round + 1:  # the waiting times are drawn anew, so nothing has to be kept
            clock += times.exponential(process.mean_wait)
            count += round <= clock < round + 1
        return count

    def _trace(self) -> Callable[[int], Bools]:
        """Round -> clients that are away (N)."""
        absence = self.absence
        nobody = np.zeros(self.clients, bool)
        if absence is None:
            return lambda round: nobody
        if absence.kind == "file":
            assert absence.file is not None
            intervals = read_intervals(absence.file, self.clients)
            return lambda round: ~_inside(intervals, round + 1, self.clients)
        rng = generator(self.seed, Stream.ABSENCE)
        present = rates(absence.present, self.clients, rng)
        if absence.kind == "cycle":
            phase = rng.random(self.clients)
            return lambda round: (round / absence.period + phase) % 1.0 >= present
        return lambda round: (
            generator(self.seed, Stream.ABSENCE, round=round + 1).random(self.clients) >= present
        )


def _inside(intervals: Ints, round: int, clients: int) -> Bools:
    inside = np.zeros(clients, bool)
    inside[intervals[(intervals[:, 1] <= round) & (round <= intervals[:, 2]), 0]] = True
    return inside


def read_intervals(path: str, clients: int) -> Ints:
    """(client, first round, last round) rows of a CSV file with that header."""
    rows = []
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not {"client", "first", "last"} <= set(reader.fieldnames or ()):
                raise FedmuxError(f"{path}: needs the columns client, first, last")
            for row in reader:
                try:
                    client, first, last = (int(row[name]) for name in ("client", "first", "last"))
                except (TypeError, ValueError):
                    raise FedmuxError(
                        f"{path}: line {reader.line_num}: should hold three whole numbers"
                    ) from None
                if not (0 <= client < clients and first <= last):
                    raise FedmuxError(
                        f"{path}: line {reader.line_num}: client must be 0..{clients - 1}, first at most last"
                    )
                rows.append((client, first, last))
    except OSError as error:
        raise FedmuxError(f"{path}: cannot be read ({error.strerror})") from None
    return np.array(rows, np.int64).reshape(-1, 3)


class Returns:
    """Which of the drawn clients return, in time if others are faster, and how likely that is."""

    def __init__(
        self, dropout: Dropout | None, clients: int, seed: int, stragglers: Stragglers | None = None
    ) -> None:
        self.dropout, self.stragglers, self.seed = dropout, stragglers, seed
        loss = rates(dropout.rate, clients, generator(seed, Stream.DROPOUT)) if dropout else np.zeros(clients)
        self.probability = 1 - loss  # N: to return at all
        self.drawn, self.returned = np.zeros(clients), np.zeros(clients)

    def enough(self, clients: Ints, over_selection: float) -> int | None:
        """How many of the drawn clients (J) are waited for, so many times those wanted; None: all."""
        if self.stragglers is None:
            return None
        return math.ceil(len(np.unique(clients)) / over_selection - 1e-9)

    def draw(self, round: int) -> Bools:
        """Clients that would return this round (N)."""
        rng = generator(self.seed, Stream.DROPOUT, round=round + 1)
        return rng.random(len(self.probability)) < self.probability

    def first(self, clients: Ints, back: Bools, enough: int | None, round: int) -> Bools:
        """Of the jobs that come back (J) those of the `enough` clients that are fastest."""
        came = np.unique(clients[back])
        if self.stragglers is None or enough is None or len(came) <= enough:
            return back
        slowness = generator(self.seed, Stream.SPEED).standard_normal(len(self.probability))
        times = generator(self.seed, Stream.SPEED, round=round + 1).exponential(size=len(self.probability))
        times *= np.exp(self.stragglers.spread * slowness)
        return back & np.isin(clients, came[np.argsort(times[came])[:enough]])

    def correction(self, clients: Ints, came: Bools, back: Bools) -> Floats:
        """What weights are divided by (N), when of these jobs (J) these could come and these were taken.

        A dropout takes a client with its own probability; being among the first is as likely for everyone who
        could come. The product keeps the expected step even though a round may lose everybody.
        """
        if self.stragglers is not None and self.stragglers.correction == "estimated":
            return self._estimated()
        kind = self.dropout.correction if self.dropout else "none"
        chance = {"known": self.probability, "estimated": self._estimated()}.get(kind)
        chance = np.ones(len(self.probability)) if chance is None else chance
        if self.stragglers is None:
            return chance
        return chance * len(np.unique(clients[back])) / max(1, len(np.unique(clients[came])))

    def _estimated(self) -> Floats:
        """N: from each client's own record, drawn towards the fleet's while it is short."""
        fleet = (self.returned.sum() + 1) / (self.drawn.sum() + 1)
        return (self.returned + 5 * fleet) / (self.drawn + 5)

    def learn(self, clients: Ints, came: Bools, back: Bools) -> None:
        """Take note of a round: the clients drawn, and which of them came, or were taken if that counts."""
        taken = back if self.stragglers is not None and self.stragglers.correction == "estimated" else came
        self.drawn[clients] += 1
        self.returned[clients[taken]] += 1

    def state(self) -> dict[str, np.ndarray]:
        estimates = self.dropout or self.stragglers
        return {"drawn": self.drawn, "returned": self.returned} if estimates else {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if state:
            self.drawn, self.returned = state["drawn"].copy(), state["returned"].copy()
