"""Whoever does the client work: reports signals, trains jobs, yields updates, scores models."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.plan import Signal
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints
from fedmux.tasks.task import Task

MOST_NAMED = 4  # clients in one line
SIGNALS, TRAIN = "query.signals", "train.multi"  # phases of a round in which something is asked of clients
Stale = Callable[[int, Ints], Tensor]  # task, clients -> the updates they sent last (k x P)


@dataclass(frozen=True, eq=False)
class Scores:
    """The global models' quality: one entry for each task, or for each client and task."""

    accuracy: Floats  # S, or N x S
    loss: Floats  # the same


@dataclass(frozen=True)
class Failure:
    """Something that was asked of a client and did not come."""

    client: str  # its own id
    task: str
    phase: str
    kind: str  # unreachable, raised, lost, late, slow, missing, shape, not-finite, norm
    reason: str

    def __str__(self) -> str:
        return f'client {self.client}, task "{self.task}": {self.phase}: {self.reason}'


def not_finite(client: int, task: str, phase: str, reason: str) -> Failure:
    """Of a simulated client, whose number is its id."""
    return Failure(str(client), task, phase, "not-finite", reason)


def told(failures: list[Failure]) -> str:
    """One line for clients of a task that failed alike."""
    first, *more = failures
    if not more:
        return str(first)
    named = ", ".join(failure.client for failure in failures[:MOST_NAMED])
    others = f" and {len(failures) - MOST_NAMED} more" if len(failures) > MOST_NAMED else ""
    return str(first).replace(f"client {first.client}", f"clients {named}{others}", 1)


class Fleet(Protocol):
    """The server's algorithms never know which fleet they run on."""

    tasks: list[Task]
    owned: Bools  # N x S: pairs whose work and state belong to this process
    notices: list[str]  # what a person should know, told and cleared after each round
    failures: list[Failure]  # recorded and cleared after each round
    keeps_updates: bool  # whether a client that trained for its signal need not train again

    @property
    def releases(self) -> Ints | None:
        """N x S: updates that clients were asked to send, if the fleet counts them."""
        ...

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: Stale
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
