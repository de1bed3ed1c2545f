"""Whoever does the client work: reports signals, trains jobs, yields updates, scores models."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from fedmux.aggregation import Updates
from fedmux.allocation import Assignment
from fedmux.allocation.plan import Signal
from fedmux.flat import Model
from fedmux.population import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Signals:
    """What clients report before allocation (N x S, NaN where not asked or not available), and its cost."""

    losses: Floats | None
    norms: Floats | None
    gradient_steps: Ints  # S
    forward_passes: Ints  # S


@dataclass(frozen=True, eq=False)
class Scores:
    """The global models' quality, one entry for each task."""

    accuracy: Floats  # S
    loss: Floats  # S


class Fleet(Protocol):
    """The server's algorithms never know which fleet they run on."""

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, available: Bools
    ) -> Signals: ...

    def train(self, models: list[Model], assignment: Assignment, round: int) -> Iterator[Updates]: ...

    def evaluate(self, models: list[Model], part: str) -> Scores: ...

    def client_accuracies(self, models: list[Model], available: Bools) -> Floats: ...
