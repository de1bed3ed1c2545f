"""Which clients and tasks are present in which round.

The arrays have room for all clients and tasks from the start; only presence changes from round to round.
Everything follows from the seed and the round, so a run can be resumed at any round.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedmux.dynamics.settings import Absence, Event, Process, rates
from fedmux.errors import FedmuxError
from fedmux.population import Bools, Ints
from fedmux.randomness import Stream, generator


@dataclass(eq=False)
class Presence:
    """Who is present in which round. Replays events from the last round queried, or from the start."""

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
        """Everyone is present in every round."""
        return not (self.events or self.arrivals or self.departures or self.absence) and bool(
            self.joined.all()
        )

    def at(self, round: int) -> tuple[Bools, Bools]:
        """Clients (N) and tasks (S) that are present in a round, counted from 0."""
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
        """Absent clients join in order of their numbers; present ones leave at random."""
        candidates = np.flatnonzero(self.joined != joins)
        if isinstance(who, list):
            chosen: Ints = np.array(who, np.int64)
        else:
            number = round(who * len(candidates)) if isinstance(who, float) else min(who, len(candidates))
            chosen = candidates[:number] if joins else rng.permutation(candidates)[:number]
        self.joined[chosen] = joins

    def _arrivals(self, process: Process, round: int, stream: int) -> int:
        """Number of arrivals of the process in a round."""
        times = generator(self.seed, Stream.ARRIVALS, task=stream)
        clock, count = 0.0, 0
        while clock < round + 1:  # waiting times are redrawn from the start, so there is no state to keep
            clock += times.exponential(process.mean_wait)
            count += round <= clock < round + 1
        return count

    def _trace(self) -> Callable[[int], Bools]:
        """Round -> clients that are absent (N)."""
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
    """Rows (client, first round, last round) of a CSV file with the header client, first, last."""
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
