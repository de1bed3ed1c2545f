"""The fleet of real clients: in each phase of a round, one message to every node that takes part.

The seed's draws go by the clients' numbers, which the roster keeps. Every job ends as an update or as a
failure with its reason.
"""

import math
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict

from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.plan import Signal
from fedmux.fleet import SIGNALS, TRAIN, TRAINED_SIGNALS, LastSent, Scores
from fedmux.fleet.journal import Journal
from fedmux.fleet.scoring import Scorer
from fedmux.flower.objective import Objective
from fedmux.flower.post import Post, Trouble
from fedmux.flower.roster import Roster
from fedmux.flower.rules import put_rule
from fedmux.flower.wire import EVALUATE, HELLO, Job, read_failure, refusal, scalars, tensor, vectors
from fedmux.model import Model
from fedmux.population import Bools, Population
from fedmux.runs.rounds import Failure
from fedmux.tasks.task import Task

LARGEST_SCALAR = 1e12  # of a loss or a score
# Scalars, and the signals that want them.
REPORTS = {"loss": {"loss"}, "norm": TRAINED_SIGNALS, "beta": {"projection"}}


class Sent(NamedTuple):
    """What came back of a job."""

    update: torch.Tensor
    buffers: torch.Tensor
    loss: float  # that training started from; NaN if it was not asked for


class FlowerFleet:
    keeps_updates = False

    def __init__(
        self,
        post: Post,
        tasks: list[Task],
        seed: int,
        roster: Roster,
        journal: Journal,
        largest_norm: float = 1e6,
        objectives: Sequence[Objective] | None = None,
    ) -> None:
        """`objectives`: what each task is trained for; by default cross-entropy."""
        self.post, self.tasks, self.seed, self.roster = post, tasks, seed, roster
        self.journal, self.largest_norm = journal, largest_norm
        self.objectives = objectives or [Objective()] * len(tasks)
        self.owned = np.ones(roster.population.sizes.shape, bool)
        self._own_rule: set[tuple[int, int]] = set()  # client, task: reported to have a privacy of its own
        self._vectors: dict[int, tuple[Model, ArrayRecord]] = {}  # by task: the model as it is sent
        self._scorer = Scorer(tasks, self.owned)
        self._updates: dict[tuple[int, int], Sent] = {}  # by task and client

    def release(self) -> None:
        """Models are on the CPU."""

    def meet(self) -> Population:
        """Ask new nodes who they are; the clients whose nodes are there and free now."""
        new = self.roster.strangers(self.post.nodes())
        for node, reply in self._ask(HELLO, {node: RecordDict() for node in new}):
            self.roster.greet(node, reply)
        self.roster.silent(new)
        return self.roster.free(self.post.busy())

    # The phases of a round

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: LastSent
    ) -> Signals:
        if not needs:
            return Signals()
        self.roster.round = round
        contents: dict[int, RecordDict] = {}
        compares = bool({"residual", "projection"} & set(needs))
        for node, client in self.roster.nodes.items():
            for s in np.flatnonzero(asked[client]).tolist():
                content = contents.setdefault(node, RecordDict())
                self._put(content, s, models[s], client, round, needs)
                if compares:
                    last = stale(s, np.array([client]))[0]
                    content[f"stale.{self.tasks[s].name}"] = vectors(update=last)
        found, answered = np.full((3, *asked.shape), np.nan), np.zeros_like(asked)
        wanted = [key for key, own in REPORTS.items() if own & set(needs)]
        for client, s, report in self._reports(SIGNALS, contents, "signal", wanted):
            found[:, client, s] = [report.get(key, np.nan) for key in REPORTS]
            answered[client, s] = True
        return Signals(
            found[0] if "loss" in needs else None,
            found[1] if TRAINED_SIGNALS & set(needs) else None,
            found[2] if "projection" in needs else None,
            silent=asked & ~answered,
        )

    def send(
        self,
        models: list[Model],
        assignment: Assignment,
        round: int,
        rule: LocalRule | None,
        enough: int | None,
        telling: Bools | None = None,
    ) -> Bools:
        """One message to each node with all its jobs; waits for enough answers or the deadline."""
        self.roster.round = round
        node_of = {client: node for node, client in self.roster.nodes.items()}
        contents: dict[int, RecordDict] = {}
        for client, s in zip(assignment.client.tolist(), assignment.task.tolist()):
            content = contents.setdefault(node_of[client], RecordDict())
            self._put(content, s, models[s], client, round, _wants_with_update(telling, client, s))
            put_rule(content, rule, self.tasks[s].name, s, client)
        self.journal.release(assignment.client, assignment.task)
        self._updates = {}
        taken: set[int] = set()
        with closing(self._ask(TRAIN, contents)) as replies:
            for node, reply in replies:
                client = self.roster.nodes[node]
                for s in assignment.task[assignment.client == client].tolist():
                    if self._take(client, s, reply, models[s], telling):
                        taken.add(client)
                if enough is not None and len(taken) >= enough:
                    break
        back = [pair in self._updates for pair in zip(assignment.task.tolist(), assignment.client.tolist())]
        return np.array(back, bool)

    def _take(self, client: int, s: int, reply: RecordDict, model: Model, telling: Bools | None) -> bool:
        task = self.tasks[s]
        if (failure := read_failure(reply, task.name)) is not None:
            self._fail(client, s, TRAIN, "raised", failure)
            return False
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
        wanted = sorted(_wants_with_update(telling, client, s))
        report = scalars(reply, f"signal.{task.name}", wanted) if wanted else {}
        if report is None:
            self._fail(client, s, TRAIN, "missing", "no loss in the reply")
            return False
        if not self._sound(report):
            self._fail(client, s, TRAIN, "not-finite", f"out of range: {report}")
            return False
        self._updates[s, client] = Sent(update, buffers, report.get("loss", math.nan))
        self._compare_privacy(client, s, dict(reply.config_records.get(f"privacy.{task.name}") or {}))
        return True

    def _compare_privacy(self, client: int, s: int, own: dict[str, Any]) -> None:
        """Report once that a client clips or adds noise by a rule of its own."""
        task = self.tasks[s]
        if (client, s) not in self._own_rule and own != (task.privacy.model_dump() if task.privacy else {}):
            self._own_rule.add((client, s))
            self.journal.notice(
                f'client {self.roster.name(client)}, task "{task.name}": follows its own privacy rule, '
                f"{own or 'none'}"
            )

    def train(
        self,
        models: list[Model],
        assignment: Assignment,
        round: int,
        rule: LocalRule | None,
        telling: Bools | None = None,
    ) -> Iterator[Updates]:
        """The updates that came back, one task at a time."""
        for s, task in enumerate(self.tasks):
            rows = np.flatnonzero(assignment.task == s)
            if len(rows):
                clients = assignment.client[rows]
                came = [self._updates.pop((s, client)) for client in clients.tolist()]
                updates, buffers = (torch.stack(parts) for parts in list(zip(*came))[:2])
                steps = task.local.steps(self.roster.population.sizes[clients, s])
                losses = None if telling is None else np.array([sent.loss for sent in came])
                yield Updates(s, rows, updates, buffers, steps, losses)

    def evaluate(self, models: list[Model], part: str) -> Scores:
        """On the server's held-out points."""
        return self._scorer.evaluate(models, part)

    def client_scores(self, models: list[Model], available: Bools) -> Scores:
        contents: dict[int, RecordDict] = {}
        for node, client in self.roster.nodes.items():
            for s in np.flatnonzero(available[client]).tolist():
                self._put(contents.setdefault(node, RecordDict()), s, models[s], client, 0)
        scores, losses = np.full((2, *available.shape), np.nan)
        for client, s, report in self._reports(EVALUATE, contents, "score", ["loss"], ["score"]):
            scores[client, s], losses[client, s] = report.get("score", np.nan), report["loss"]
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
        asked = frozenset(wants), task.privacy, self.objectives[s]
        job = Job(model, s, client, round, self.seed, rate, task.local, *asked)
        job.put(content, task.name, self._vectors[s][1])

    def _reports(
        self,
        kind: str,
        contents: Mapping[int, RecordDict],
        key: str,
        wanted: list[str],
        welcome: Sequence[str] = (),
    ) -> Iterator[tuple[int, int, dict[str, float]]]:
        """The wanted scalars of each client and task that was asked, and those that are welcome, where they
        are sound."""
        for node, reply in self._ask(kind, contents):
            client = self.roster.nodes[node]
            for s, task in enumerate(self.tasks):
                if f"job.{task.name}" not in contents[node].config_records:
                    continue
                report = scalars(reply, f"{key}.{task.name}", wanted, welcome)
                if (failure := read_failure(reply, task.name)) is not None:
                    self._fail(client, s, kind, "raised", failure)
                elif report is None:
                    self._fail(client, s, kind, "missing", f"no {' and '.join(wanted)} in the reply")
                elif not self._sound(report):
                    self._fail(client, s, kind, "not-finite", f"out of range: {report}")
                else:
                    yield client, s, report

    def _sound(self, report: dict[str, float]) -> bool:
        """Finite, and possible for an update that would be taken."""
        bounds = {"norm": self.largest_norm, "beta": self.largest_norm}
        if not all(math.isfinite(value) for value in report.values()) or report.get("norm", 0.0) < 0:
            return False
        return all(abs(value) <= bounds.get(key, LARGEST_SCALAR) for key, value in report.items())

    def _ask(self, kind: str, contents: Mapping[int, RecordDict]) -> Generator[tuple[int, RecordDict]]:
        """Replies as they arrive; a node without one is a failure with a reason.

        Closing this early does not wait for the others: they stay busy until they answer.
        """
        left = dict(contents)
        try:
            with closing(self.post.ask(kind, contents)) as replies:
                for node, reply in replies:
                    content = left.pop(node)
                    if isinstance(reply, Trouble):
                        self._fail_all(node, content, kind, *reply)
                    else:
                        self.roster.answered(node)
                        yield node, reply
        except GeneratorExit:
            for node, content in left.items():
                self._fail_all(node, content, kind, "slow", "enough others were faster")
            raise

    def _fail_all(self, node: int, content: RecordDict, phase: str, kind: str, reason: str) -> None:
        known: list[int | None] = [
            s for s, task in enumerate(self.tasks) if f"job.{task.name}" in content.config_records
        ]
        client = self.roster.nodes.get(node)
        for s in known or [None]:
            self._fail(client, s, phase, kind, reason)
        if kind == "late" and client is not None:
            self.roster.late(client)

    def _fail(self, client: int | None, s: int | None, phase: str, kind: str, reason: str) -> None:
        name = "?" if client is None else self.roster.name(client)
        task = "-" if s is None else self.tasks[s].name
        self.journal.fail(Failure(name, task, phase, kind, reason))


def _wants_with_update(telling: Bools | None, client: int, s: int) -> frozenset[Signal]:
    """What a client sends with its update."""
    return frozenset({"loss"} if telling is not None and telling[client, s] else ())
