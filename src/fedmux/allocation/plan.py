"""The interface that every allocator shares: a round's state in, a plan out, a draw from the plan.

Section III of [P1] (Zhang et al.): p_is is the probability that one given processor of client i trains
task s; a client's processors are identical, so a plan has N x S entries. Each processor makes one
categorical draw over its client's tasks and "none", so it never gets two tasks.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, SupportsIndex

import numpy as np

from fedmux.allocation.clusters import clustered
from fedmux.allocation.draws import dependent_rounding, systematic
from fedmux.allocation.lessons import Forecasts, Lesson, Lessons
from fedmux.errors import FedmuxError
from fedmux.population import Bools, Floats, Ints, Population, row_sums
from fedmux.randomness import Stream, generator

Draws = Literal["independent", "systematic", "dependent-rounding", "clustered"]
Signal = Literal["loss", "norm", "residual", "projection", "accuracy"]


@dataclass(frozen=True)
class Budget:
    """How much is trained per round: `jobs` (m, in expectation) or a `rate` of all that can take part."""

    jobs: float | None = None
    rate: float | None = None
    wanted: "Budget | None" = None  # what is needed, if more is drawn; None: all of it

    def times(self, factor: float) -> "Budget":
        """A budget to draw `factor` times as much, of which this much is needed."""
        rate = None if self.rate is None else min(1.0, factor * self.rate)
        return Budget(None if self.jobs is None else factor * self.jobs, rate, self)

    def of_processors(self, total: float) -> float:
        """m out of `total` processors (V); never more than there are."""
        wanted = self.jobs if self.jobs is not None else (self.rate or 0.0) * total
        return min(wanted, total)

    def of_clients(self, total: int) -> int:
        """Whole clients out of `total`: max(1, floor(C K + 1/2)) as in [P2] section III."""
        wanted = self.jobs if self.jobs is not None else (self.rate or 0.0) * total
        return min(max(1, int(wanted + 0.5)), total)

    def rate_of_clients(self, total: int) -> float:
        """The share of `total` clients that is active."""
        return min(1.0, (self.rate or 0.0) if self.jobs is None else self.jobs / max(total, 1))


@dataclass(frozen=True, eq=False)
class Signals:
    """What clients report (N x S, NaN where not asked or not available); None: not requested."""

    losses: Floats | None = None  # mean loss over the client's own points, before training
    norms: Floats | None = None  # of the update G; of G - h for "residual", of G - beta h for "projection"
    betas: Floats | None = None  # <G, h> / ||h||^2 for "projection", with h the client's last update
    silent: Bools | None = None  # N x S: asked, but gave no usable answer

    def where(self, pairs: Bools) -> "Signals":
        """The reports of some pairs only (N x S, or S for whole tasks)."""

        def chosen(values: Floats | None) -> Floats | None:
            return None if values is None else np.where(pairs, values, np.nan)

        return Signals(chosen(self.losses), chosen(self.norms), chosen(self.betas), self.silent)


@dataclass(frozen=True, eq=False)
class RoundState:
    """All that an allocator or aggregator may see. Signals are present if the allocator needs them."""

    round: int
    rounds: int
    seed: int
    population: Population
    budget: Budget
    learning_rates: Floats  # S
    costs: Floats  # S: of a job of each task, in units of the budget
    signals: Signals = Signals()
    accuracies: Floats | None = None  # S: on the validation part; the progress of other metrics, NaN: unknown
    units: Floats | None = None  # S: load of a job of each task on a processor, at least 1; None: all 1
    momenta: Floats | None = None  # S: of local SGD; None: none
    names: tuple[str, ...] = ()  # S: of the tasks, for messages
    noise: Floats | None = None  # S: norm of the noise that clients add to an update; None: none
    betas: Floats | None = None  # N x S: by what the plan multiplies stale updates; None: it leaves it open

    def task(self, s: SupportsIndex) -> str:
        """How messages refer to a task."""
        return f'task "{self.names[s]}"' if self.names else f"task {s}"

    def rng(self, stream: Stream = Stream.ALLOCATION, *, round: int | None = None) -> np.random.Generator:
        return generator(self.seed, stream, round=self.round if round is None else round)


@dataclass(frozen=True, eq=False)
class Assignment:
    """The jobs of a round, one row for each distinct (client, task), ordered by task, then client."""

    client: Ints  # J
    task: Ints  # J
    count: Ints  # J: processors of the client on this task; it trains once, weighted by the count
    probability: Floats  # J: p_is of one processor
    expected: Floats  # J: E[count] = B_i p_is

    def __len__(self) -> int:
        return len(self.client)

    def only(self, rows: Bools, chance: Floats) -> "Assignment":
        """The jobs that return, if each client (N) returns with this probability."""
        client = self.client[rows]
        expected = self.expected[rows] * chance[client]
        return Assignment(client, self.task[rows], self.count[rows], self.probability[rows], expected)


class Plan(Protocol):
    def draw(self, rng: np.random.Generator) -> Assignment: ...


class Allocator:
    """Decides who trains what. `needs` names the signals it uses; `plan` is pure: arrays in, arrays out.

    The defaults of the other methods suit an allocator without memory.
    """

    needs: frozenset[Signal] = frozenset()
    learns: frozenset[Lesson] = frozenset()  # what it wants to know of the updates that arrive
    mixing = 0.0  # share of Random in its probabilities: bounds a client's load

    def reporters(self, state: RoundState) -> Bools:
        """N x S: the pairs that are asked for signals before the draw."""
        return state.population.available

    def plan(self, state: RoundState) -> Plan:
        raise FedmuxError(f"{type(self).__name__} has no plan(self, state); define one that returns a plan")

    def learn(self, state: RoundState, lessons: Lessons) -> None:
        """After the round: what its updates showed of what the allocator `learns`."""

    def forget(self, task: int) -> None:
        """Drop what was learned about a task: its model has diverged and was set back."""

    def scores(self, state: RoundState) -> Floats | None:
        """N x S: how much each pair matters, NaN: not known; None: this allocator does not use scores."""
        return None

    def forecasts(self, state: RoundState) -> Forecasts | None:
        """What the round's plan took the updates to be like; asked after `plan`, by `fedmux explain`."""
        return None

    def groups(self) -> Ints | None:
        """N: the group of each client (-1: none) if the last plan formed groups; None if it did not."""
        return None

    def notes(self) -> dict[str, Any]:
        """What to record about the last plan, as JSON values."""
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """State that must survive a restart."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """The inverse of `state`."""


@dataclass(frozen=True, eq=False)
class Probabilities:
    """A plan by probabilities, drawn for each processor independently unless `draws` says otherwise.

    If the plan itself is random, weights are divided by `marginal` (default: `probability`). With `clients`
    set, exactly that many clients are drawn without replacement, one job each.
    """

    probability: Floats  # N x S
    processors: Ints  # N: how many times client i draws
    marginal: Floats | None = None  # N x S
    clients: int | None = None
    draws: Draws = "independent"
    costs: Floats | None = None  # S: of a job, if the plan's budget is in costs; None: each is 1
    betas: Floats | None = None  # N x S: multiplies stale updates, where the aggregator keeps any

    def draw(self, rng: np.random.Generator) -> Assignment:
        if self.draws == "systematic":
            rows, task = systematic(self.probability, self.processors, rng)
        elif self.draws == "dependent-rounding":
            rows, task = dependent_rounding(self.probability, self.processors, rng)
        elif self.draws == "clustered":
            rows, task = clustered(self.probability, self.processors, rng)
        else:
            rows, task = self._independent(rng)
        pair, count = np.unique(task * len(self.probability) + rows, return_counts=True)
        task, client = np.divmod(pair, len(self.probability))
        marginal = self.probability if self.marginal is None else self.marginal
        chosen = marginal[client, task]
        return Assignment(client, task, count, chosen, self.processors[client] * chosen)

    def _independent(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        rows = self._active(rng)
        cumulative = np.cumsum(self.probability[rows], axis=1)
        total = cumulative[:, -1]
        point = np.minimum(rng.random(len(rows)) * total, np.nextafter(total, 0))
        return rows, (point[:, None] >= cumulative).sum(1)

    def _active(self, rng: np.random.Generator) -> Ints:
        """The client of each processor that trains something, with repetition."""
        total = row_sums(self.probability)
        if self.clients is not None:
            candidates = np.flatnonzero(total > 0)
            return np.sort(rng.choice(candidates, min(self.clients, len(candidates)), replace=False))
        return np.repeat(np.arange(len(total)), rng.binomial(self.processors, np.minimum(total, 1.0)))


@dataclass(frozen=True, eq=False)
class Fixed:
    """A deterministic plan: the given pairs, each once."""

    client: Ints  # J
    task: Ints  # J
    beyond_capacity: bool = False  # a client may get more jobs than it has processors
    wanted: int | None = None  # how many of these jobs are needed, if more are drawn; None: all

    def draw(self, rng: np.random.Generator) -> Assignment:
        order = np.lexsort((self.client, self.task))
        ones = np.ones(len(order))
        return Assignment(self.client[order], self.task[order], ones.astype(np.int64), ones, ones)


def over_selection(plan: Plan, budget: Budget) -> float:
    """The factor by which a plan over-selects, at least 1; less than intended if clients run out."""
    wanted = budget.wanted or budget
    if isinstance(plan, Fixed):
        return max(1.0, len(plan.client) / plan.wanted) if plan.wanted else 1.0
    if not isinstance(plan, Probabilities):
        return 1.0
    takes_part = plan.probability.any(1)
    if plan.clients is not None:
        return max(1.0, plan.clients / wanted.of_clients(int(takes_part.sum()))) if plan.clients else 1.0
    expected = plan.processors @ plan.probability
    if plan.costs is not None and wanted.jobs is not None:
        spent, least = float(expected @ plan.costs), wanted.jobs
    else:
        spent, least = float(expected.sum()), wanted.of_processors(float(plan.processors[takes_part].sum()))
    return max(1.0, spent / least) if least > 0 else 1.0
