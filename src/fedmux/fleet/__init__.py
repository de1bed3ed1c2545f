"""Whoever does the client work: reports signals, trains jobs, yields updates, scores models."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.plan import Signal
from fedmux.fleet.journal import Journal
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints
from fedmux.tasks.task import Task

TRAINED_SIGNALS = frozenset({"norm", "residual", "projection"})  # for which clients train
SIGNALS, TRAIN = "query.signals", "train.multi"  # phases of a round in which something is asked of clients
LastSent = Callable[[int, Ints], Tensor]  # task, clients -> the updates they sent last (k x P)


@dataclass(frozen=True, eq=False)
class Scores:
    """The global models' quality: one entry for each task, or for each client and task."""

    accuracy: Floats  # S, or N x S
    loss: Floats  # the same


class Fleet(Protocol):
    """The server's algorithms never know which fleet they run on."""

    tasks: list[Task]
    owned: Bools  # N x S: pairs whose work and state belong to this process
    journal: Journal  # what it notices
    keeps_updates: bool  # whether a client that trained for its signal need not train again

    def release(self) -> None:
        """Give back what memory can be had again."""
        ...

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: LastSent
    ) -> Signals:
        """What the asked pairs (N x S) report; `stale` knows what a client sent last, as it does itself.

        Who reports something that is not finite counts as silent, with a failure.
        """
        ...

    def send(
        self,
        models: list[Model],
        assignment: Assignment,
        round: int,
        rule: LocalRule | None,
        enough: int | None,
    ) -> Bools:
        """Give out the jobs (J); which of them come back, when so many clients are waited for."""
        ...

    def train(
        self, models: list[Model], assignment: Assignment, round: int, rule: LocalRule | None
    ) -> Iterator[Updates]:
        """Updates of jobs that came back, in chunks; those that are not finite are left out."""
        ...

    def evaluate(self, models: list[Model], part: str) -> Scores:
        """Scores on a held-out part: "validation", "test", or "glance": a few validation points."""
        ...

    def client_scores(self, models: list[Model], available: Bools) -> Scores:
        """N x S: each global model on each client's own points; NaN: not known."""
        ...
