"""The fleet of real clients: each phase of a round is one message to every node that has a part in it.

A client is known by its own stable id, never by its node's; the fleet gives each id a number, and the seed's
draws go by that number. Every job ends as an update or as a failure with its reason.
"""

import math
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import Grid

from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.plan import Signal
from fedmux.fleet import SIGNALS, TRAIN, TRAINED_SIGNALS, LastSent, Scores
from fedmux.fleet.journal import Journal
from fedmux.fleet.simulated import SimulatedFleet
from fedmux.flower.post import Post, Trouble
from fedmux.flower.wire import (
    EVALUATE,
    HELLO,
    Hello,
    Job,
    put_rule,
    refusal,
    scalars,
    tensor,
    vectors,
)
from fedmux.model import Model
from fedmux.population import Bools, Ints, Population
from fedmux.runs.rounds import Failure
from fedmux.tasks.task import Task

MOST_REST = 16  # rounds
LARGEST_SCALAR = 1e12  # of a loss or a score
# Scalars, and the signals that want them.
REPORTS = {"loss": {"loss"}, "norm": TRAINED_SIGNALS, "beta": {"projection"}}


class FlowerFleet:
    keeps_updates = False

    def __init__(
        self,
        grid: Grid,
        tasks: list[Task],
        clients: int,
        seed: int,
        deadline: float = 300.0,
        largest_norm: float = 1e6,
        known: Mapping[str, int] | None = None,
        people: Population | None = None,
        remember: Callable[[dict[str, int]], None] = lambda numbers: None,
        failed: Callable[[Failure], None] = lambda failure: None,
        releases: Ints | None = None,
        released: Callable[[Ints], None] = lambda releases: None,
    ) -> None:
        """`known` numbers of clients from before, `people`, what they had, `releases` (N x S), updates that
        they were asked for; `remember` is called with all numbers when one is new, `failed` with each failure
        at once, `released` with the releases before updates are asked for."""
        self.post, self.tasks, self.seed = Post(grid, deadline), tasks, seed
        self.largest_norm, self.remember, self.failed = largest_norm, remember, failed
        self.owned = np.ones((clients, len(tasks)), bool)
        self.journal = Journal()
        self.numbers = dict(known or {})  # a client's own id -> its number
        self.nodes: dict[int, int] = {}  # node -> number of its client; only nodes that are there
        self._own_rule: set[tuple[int, int]] = set()  # client, task: told that its privacy is its own
        self._told: set[int] = set()  # clients that were there when `changes` was last asked
        self._replaced: set[int] = set()  # nodes whose client has come back as another node
        self._round = -1  # the last one begun
        self._late: dict[int, tuple[int, int]] = {}  # client: times late in a row, the round it sits out to
        self.releases = np.zeros(self.owned.shape, np.int64) if releases is None else releases
        self.released = released
        self._vectors: dict[int, tuple[Model, ArrayRecord]] = {}  # by task: the model as it is sent
        self._shy: dict[int, tuple[int, int]] = {}  # the same of nodes that did not say who they are
        self.population = people or Population(
            np.zeros(clients, np.int64), np.zeros((clients, len(tasks)), np.int64), np.zeros_like(self.owned)
        )
        self._scoring = SimulatedFleet(tasks, seed)
        self._updates: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}  # task, client

    def release(self) -> None:
        """Models are on the CPU."""

    # Who is there

    def meet(self) -> Population:
        """Ask nodes that are new for who they are; the clients whose nodes are there and free now."""
        online = self.post.nodes()
        self._replaced &= online  # one that goes and comes back is asked again
        present = online - self._replaced
        self.nodes = {node: number for node, number in self.nodes.items() if node in present}
        resting = {node for node, (_, until) in self._shy.items() if until > self._round + 1}
        new = {node: RecordDict() for node in present if node not in self.nodes and node not in resting}
        for node, reply in self._ask(HELLO, new):
            self._greet(node, reply)
        for node in new:  # one that does not say who it is sits out like one that is late
            if node not in self.nodes and node not in self._replaced:
                self._shy[node] = _rest(self._shy.get(node), self._round)
        busy = self.post.busy()
        free = [number for node, number in self.nodes.items() if node not in busy]
        rested = [number for number in free if self._late.get(number, (0, 0))[1] <= self._round + 1]
        there = np.zeros(len(self.population.capacity), bool)
        there[rested or free] = True
        return replace(self.population, eligible=self.population.eligible & there[:, None])

    def changes(self) -> dict[str, list[Any]]:
        """Numbers of the clients that came and went since this was last asked."""
        now = set(self.nodes.values())
        before, self._told = self._told, now
        return {"joined": sorted(now - before), "left": sorted(before - now)}

    def _greet(self, node: int, reply: RecordDict) -> None:
        try:
            hello = Hello.read(reply)
        except ValueError as error:
            self._replaced.add(node)
            self._fail_all(node, RecordDict(), HELLO, "missing", f"node {node}: {error}")
            return
        name = hello.client
        if name not in self.numbers:
            if len(self.numbers) == len(self.population.capacity):
                self._replaced.add(node)
                self.journal.notice(
                    f"client {name} is one too many: population.clients = {len(self.numbers)}"
                )
                return
            self.numbers[name] = self._number(name)
            self.remember(self.numbers)
        number = self.numbers[name]
        before = [other for other, its in self.nodes.items() if its == number]
        if before:
            self._replaced.update(before)
            self.journal.notice(
                f"client {name} has come as another node; the one before is not asked any more"
            )
        self.nodes = {other: its for other, its in self.nodes.items() if other not in before}
        people = self.population
        capacity, sizes, eligible = people.capacity.copy(), people.sizes.copy(), people.eligible.copy()
        capacity[number] = hello.processors
        sizes[number] = [hello.sizes.get(task.name, 0) for task in self.tasks]
        eligible[number] = sizes[number] > 0
        self.population = Population(capacity, sizes, eligible)
        self.nodes[node] = number

    def _number(self, name: str) -> int:
        """An id that is a number of the fleet stays it, so that a federation can equal a simulation."""
        taken = set(self.numbers.values())
        free = [number for number in range(len(self.population.capacity)) if number not in taken]
        own = int(name) if name.isascii() and name.isdigit() else -1
        return own if own in free else free[0]

    # The phases of a round

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: LastSent
    ) -> Signals:
        if not needs:
            return Signals()
        self._round = round
        contents: dict[int, RecordDict] = {}
        compares = bool({"residual", "projection"} & set(needs))
        for node, client in self.nodes.items():
            for s in np.flatnonzero(asked[client]).tolist():
                content = contents.setdefault(node, RecordDict())
                self._put(content, s, models[s], client, round, needs)
                if compares:
                    last = stale(s, np.array([client]))[0]
                    content[f"stale.{self.tasks[s].name}"] = vectors(update=last)
        told, answered = np.full((3, *asked.shape), np.nan), np.zeros_like(asked)
        wanted = [key for key, own in REPORTS.items() if own & set(needs)]
        for client, s, report in self._reports(SIGNALS, contents, "signal", wanted):
            told[:, client, s] = [report.get(key, np.nan) for key in REPORTS]
            answered[client, s] = True
        return Signals(
            told[0] if "loss" in needs else None,
            told[1] if TRAINED_SIGNALS & set(needs) else None,
            told[2] if "projection" in needs else None,
            silent=asked & ~answered,
        )

    def send(
        self,
        models: list[Model],
        assignment: Assignment,
        round: int,
        rule: LocalRule | None,
        enough: int | None,
    ) -> Bools:
        """One message to each node with all its jobs; waits until enough are answered or time is up."""
        self._round = round
        node_of = {client: node for node, client in self.nodes.items()}
        contents: dict[int, RecordDict] = {}
        for client, s in zip(assignment.client.tolist(), assignment.task.tolist()):
            content = contents.setdefault(node_of[client], RecordDict())
            self._put(content, s, models[s], client, round)
            put_rule(content, rule, self.tasks[s], s, client)
        self.releases[assignment.client, assignment.task] += 1
        self.released(self.releases)
        self._updates = {}
        taken: set[int] = set()
        with closing(self._ask(TRAIN, contents)) as replies:
            for node, reply in replies:
                client = self.nodes[node]
                for s in assignment.task[assignment.client == client].tolist():
                    if self._take(client, s, reply, models[s]):
                        taken.add(client)
                if enough is not None and len(taken) >= enough:
                    break
        back = [pair in self._updates for pair in zip(assignment.task.tolist(), assignment.client.tolist())]
        return np.array(back, bool)

    def _take(self, client: int, s: int, reply: RecordDict, model: Model) -> bool:
        task = self.tasks[s]
        record = reply.array_records.get(f"update.{task.name}")
        if record is None or not {"update", "buffers"} <= set(record):
            self._fail(client, s, TRAIN, "missing", "no update in the reply")
            return False
        try:
            update, buffers = (
                tensor(record, "update", model.parameters),
                tensor(record, "buffers", model.buffers),
            )
            refused = refusal(update, buffers, model, self.largest_norm)
        except ValueError as error:
            refused = "shape", str(error)
        if refused:
            self._fail(client, s, TRAIN, *refused)
            return False
        self._updates[s, client] = update, buffers
        self._compare_privacy(client, s, dict(reply.config_records.get(f"privacy.{task.name}") or {}))
        return True

    def _compare_privacy(self, client: int, s: int, own: dict[str, Any]) -> None:
        """Say once that a client clips or adds noise by a rule of its own."""
        task = self.tasks[s]
        if (client, s) not in self._own_rule and own != (task.privacy.model_dump() if task.privacy else {}):
            self._own_rule.add((client, s))
            self.journal.notice(
                f'client {self._name(client)}, task "{task.name}": sends updates by its own privacy, '
                f"{own or 'none'}"
            )

    def train(
        self, models: list[Model], assignment: Assignment, round: int, rule: LocalRule | None
    ) -> Iterator[Updates]:
        """What came back, one task at a time."""
        for s, task in enumerate(self.tasks):
            rows = np.flatnonzero(assignment.task == s)
            if len(rows):
                clients = assignment.client[rows]
                came = [self._updates.pop((s, client)) for client in clients.tolist()]
                updates, buffers = (torch.stack(parts) for parts in zip(*came))
                steps = task.local.steps(self.population.sizes[clients, s])
                yield Updates(s, rows, updates, buffers, steps)

    def evaluate(self, models: list[Model], part: str) -> Scores:
        """On the held-out points that the server has."""
        return self._scoring.evaluate(models, part)

    def client_scores(self, models: list[Model], available: Bools) -> Scores:
        contents: dict[int, RecordDict] = {}
        for node, client in self.nodes.items():
            for s in np.flatnonzero(available[client]).tolist():
                self._put(contents.setdefault(node, RecordDict()), s, models[s], client, 0)
        scores, losses = np.full((2, *available.shape), np.nan)
        for client, s, report in self._reports(EVALUATE, contents, "score", ["score", "loss"]):
            scores[client, s], losses[client, s] = report["score"], report["loss"]
        return Scores(scores, losses)

    # Messages

    def _put(
        self,
        content: RecordDict,
        s: int,
        model: Model,
        client: int,
        round: int,
        wants: Collection[Signal] = (),
    ) -> None:
        task = self.tasks[s]
        rate = float(task.learning_rate(round))
        if s not in self._vectors or self._vectors[s][0] is not model:  # one copy for all nodes
            self._vectors[s] = model, vectors(parameters=model.parameters, buffers=model.buffers)
        Job(model, s, client, round, self.seed, rate, task.local, frozenset(wants), task.privacy).put(
            content, task.name, self._vectors[s][1]
        )

    def _reports(
        self, kind: str, contents: Mapping[int, RecordDict], key: str, wanted: list[str]
    ) -> Iterator[tuple[int, int, dict[str, float]]]:
        """The wanted scalars of each client and task that was asked and answered with sound ones."""
        for node, reply in self._ask(kind, contents):
            client = self.nodes[node]
            for s, task in enumerate(self.tasks):
                if f"job.{task.name}" not in contents[node].config_records:
                    continue
                report = scalars(reply, f"{key}.{task.name}", wanted)
                if report is None:
                    self._fail(client, s, kind, "missing", f"no {' and '.join(wanted)} in the reply")
                elif not self._sound(report):
                    self._fail(client, s, kind, "not-finite", f"not sound: {report}")
                else:
                    yield client, s, report

    def _sound(self, report: dict[str, float]) -> bool:
        """Finite, and not beyond what updates that are taken can have."""
        bounds = {"norm": self.largest_norm, "beta": self.largest_norm}
        if not all(math.isfinite(value) for value in report.values()) or report.get("norm", 0.0) < 0:
            return False
        return all(abs(value) <= bounds.get(key, LARGEST_SCALAR) for key, value in report.items())

    def _ask(self, kind: str, contents: Mapping[int, RecordDict]) -> Generator[tuple[int, RecordDict]]:
        """Replies as they come; each node without one is a failure with a reason.

        Whoever closes this early does not wait for the others: they stay busy until they answer.
        """
        left = dict(contents)
        try:
            with closing(self.post.ask(kind, contents)) as replies:
                for node, reply in replies:
                    content = left.pop(node)
                    if isinstance(reply, Trouble):
                        self._fail_all(node, content, kind, *reply)
                    else:
                        self._late.pop(self.nodes.get(node, -1), None)
                        yield node, reply
        except GeneratorExit:
            for node, content in left.items():
                self._fail_all(node, content, kind, "slow", "enough others were faster")
            raise

    def _name(self, client: int) -> str:
        return next(name for name, number in self.numbers.items() if number == client)

    def _fail_all(self, node: int, content: RecordDict, phase: str, kind: str, reason: str) -> None:
        names = [key.removeprefix("job.") for key in content.config_records]
        known: list[int | None] = [s for s, task in enumerate(self.tasks) if task.name in names]
        client = self.nodes.get(node)
        for s in known or [None]:
            self._fail(client, s, phase, kind, reason)
        if kind == "late" and client is not None:  # sits out: one that hangs costs a deadline
            self._late[client] = _rest(self._late.get(client), self._round)

    def _fail(self, client: int | None, s: int | None, phase: str, kind: str, reason: str) -> None:
        name = "?" if client is None else self._name(client)
        task = "-" if s is None else self.tasks[s].name
        failure = Failure(name, task, phase, kind, reason)
        self.journal.fail(failure)
        self.failed(failure)


def _rest(before: tuple[int, int] | None, round: int) -> tuple[int, int]:
    """Times in a row, and the round to sit out to: 1, 3, 7, 15 rounds."""
    times = (before or (0, 0))[0] + 1
    return times, round + min(2**times, MOST_REST)
