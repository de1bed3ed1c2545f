"""A fleet does the clients' work: it reports signals, trains jobs, yields updates and scores models."""

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

TRAINED_SIGNALS = frozenset({"norm", "residual", "projection"})  # signals that clients must train for
SIGNALS, TRAIN = "query.signals", "train.multi"  # phases of a round that involve clients
LastSent = Callable[[int, Ints], Tensor]  # task, clients -> their last updates (k x P)


@dataclass(frozen=True, eq=False)
class Scores:
    """The global models' quality: one entry per task, or per client and task."""

    score: Floats  # S, or N x S: by each task's metric
    loss: Floats  # S, or N x S


class Fleet(Protocol):
    """The interface; the server's algorithms never know which fleet they run on."""

    tasks: list[Task]
    owned: Bools  # N x S: pairs whose work and state belong to this process
    journal: Journal  # notices and failures
    keeps_updates: bool  # whether a client that trained for its signal need not train again

    def release(self) -> None:
        """Free memory that can be rebuilt."""
        ...

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: LastSent
    ) -> Signals:
        """What the asked pairs (N x S) report; `stale` looks up a client's last update, which it also has.

        A client whose report is not finite counts as silent, and a failure is recorded.
        """
        ...

    def send(
        self,
        models: list[Model],
        assignment: Assignment,
        round: int,
        rule: LocalRule | None,
        enough: int | None,
        telling: Bools | None = None,
    ) -> Bools:
        """Give out the jobs (J) and wait for `enough` clients; returns which jobs come back.

        The pairs in `telling` (N x S) send the loss they start from with their update.
        """
        ...

    def train(
        self,
        models: list[Model],
        assignment: Assignment,
        round: int,
        rule: LocalRule | None,
        telling: Bools | None = None,
    ) -> Iterator[Updates]:
        """Updates of jobs that came back, in chunks, with the losses of those `telling`; non-finite ones are
        left out."""
        ...

    def evaluate(self, models: list[Model], part: str) -> Scores:
        """Scores on held-out points: "validation", "test", or "glance" (a few validation points)."""
        ...

    def client_scores(self, models: list[Model], available: Bools) -> Scores:
        """N x S: each global model on each client's own points; NaN: unknown."""
        ...
