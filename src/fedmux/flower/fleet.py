"""The fleet of real clients: each phase of a round is one message to every node that has a part in it.

A client is known by its own stable id, never by its node's; the fleet gives each id a number, and the seed's
draws go by that number. Every job ends as an update or as a failure with its reason.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.plan import Signal
from fedmux.flat import Model
from fedmux.fleet import Scores, Stale
from fedmux.fleet.simulated import TRAINED_SIGNALS, SimulatedFleet
from fedmux.flower.wire import EVALUATE, HELLO, SIGNALS, TRAIN, Job, put_rule, refusal, tensor, vectors
from fedmux.population import Bools, Floats, Population
from fedmux.tasks.task import Task

POLL = 0.3  # seconds between looks for replies


class FlowerFleet:
    def __init__(
        self,
        grid: Grid,
        tasks: list[Task],
        clients: int,
        seed: int,
        deadline: float = 300.0,
        largest_norm: float = 1e6,
    ) -> None:
        self.grid, self.tasks, self.seed = grid, tasks, seed
        self.deadline, self.largest_norm = deadline, largest_norm
        self.owned = np.ones((clients, len(tasks)), bool)
        self.notices: list[str] = []
        self.numbers: dict[str, int] = {}  # a client's own id -> its number
        self.nodes: dict[int, int] = {}  # node -> number of its client; only nodes that are there
        self.population = Population(
            np.zeros(clients, np.int64), np.zeros((clients, len(tasks)), np.int64), np.zeros_like(self.owned)
        )
        self._scoring = SimulatedFleet(tasks, seed)
        self._updates: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}  # task, client

    # Who is there

    def meet(self) -> Population:
        """Ask nodes that are new for who they are; the clients whose nodes are there now."""
        present = set(self.grid.get_node_ids())
        self.nodes = {node: number for node, number in self.nodes.items() if node in present}
        new = {node: RecordDict() for node in present if node not in self.nodes}
        for node, reply in self._ask(HELLO, new).items():
            self._greet(node, reply)
        there = np.zeros(len(self.population.capacity), bool)
        there[list(self.nodes.values())] = True
        return replace(self.population, eligible=self.population.eligible & there[:, None])

    def _greet(self, node: int, reply: RecordDict) -> None:
        hello: dict[str, Any] = dict(reply.config_records["hello"])
        name = str(hello["client"])
        if name not in self.numbers and len(self.numbers) == len(self.population.capacity):
            self.notices.append(f"client {name} is one too many: population.clients = {len(self.numbers)}")
            return
        number = self.numbers.setdefault(name, self._number(name))
        people = self.population
        capacity, sizes, eligible = people.capacity.copy(), people.sizes.copy(), people.eligible.copy()
        held = dict(zip(hello["tasks"], hello["sizes"]))
        capacity[number] = hello["processors"]
        sizes[number] = [int(held.get(task.name, 0)) for task in self.tasks]
        eligible[number] = sizes[number] > 0
        self.population = Population(capacity, sizes, eligible)
        self.nodes[node] = number

    def _number(self, name: str) -> int:
        """An id that is a number of the fleet stays it, so that a federation can equal a simulation."""
        taken = set(self.numbers.values())
        if name.isdigit() and int(name) < len(self.population.capacity) and int(name) not in taken:
            return int(name)
        return next(number for number in range(len(self.population.capacity)) if number not in taken)

    # The phases of a round

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: Stale
    ) -> Signals:
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
        for client, s, report in self._reports(SIGNALS, contents, "signal"):
            told[:, client, s] = [report.get(key, np.nan) for key in ("loss", "norm", "beta")]
            answered[client, s] = True
        return Signals(
            told[0] if "loss" in needs else None,
            told[1] if TRAINED_SIGNALS & set(needs) else None,
            told[2] if "projection" in needs else None,
            silent=asked & ~answered if needs else None,
        )

    def send(self, models: list[Model], assignment: Assignment, round: int, rule: LocalRule | None) -> Bools:
        """One message to each node with all its jobs; waits until each is answered or out of time."""
        node_of = {client: node for node, client in self.nodes.items()}
        contents: dict[int, RecordDict] = {}
        for client, s in zip(assignment.client.tolist(), assignment.task.tolist()):
            content = contents.setdefault(node_of[client], RecordDict())
            self._put(content, s, models[s], client, round)
            put_rule(content, rule, self.tasks[s], s, client)
        self._updates = {}
        for node, reply in self._ask(TRAIN, contents).items():
            client = self.nodes[node]
            for s in assignment.task[assignment.client == client].tolist():
                self._take(client, s, reply, models[s])
        back = [pair in self._updates for pair in zip(assignment.task.tolist(), assignment.client.tolist())]
        return np.array(back, bool)

    def _take(self, client: int, s: int, reply: RecordDict, model: Model) -> None:
        record = reply.array_records.get(f"update.{self.tasks[s].name}")
        if record is None or not {"update", "buffers"} <= set(record):
            self._fail(client, s, "no update in the reply")
            return
        update, buffers = tensor(record, "update"), tensor(record, "buffers")
        if reason := refusal(update, buffers, model, self.largest_norm):
            self._fail(client, s, reason)
        else:
            self._updates[s, client] = update, buffers

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

    def client_accuracies(self, models: list[Model], available: Bools) -> Floats:
        contents: dict[int, RecordDict] = {}
        for node, client in self.nodes.items():
            for s in np.flatnonzero(available[client]).tolist():
                self._put(contents.setdefault(node, RecordDict()), s, models[s], client, 0)
        scores = np.full(available.shape, np.nan)
        for client, s, report in self._reports(EVALUATE, contents, "score"):
            scores[client, s] = report["score"]
        return scores

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
        Job(model, s, client, round, self.seed, rate, task.local, frozenset(wants)).put(content, task.name)

    def _reports(
        self, kind: str, contents: Mapping[int, RecordDict], key: str
    ) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Scalars of each client and task that answered."""
        for node, reply in self._ask(kind, contents).items():
            for s, task in enumerate(self.tasks):
                if (record := reply.metric_records.get(f"{key}.{task.name}")) is not None:
                    yield self.nodes[node], s, dict(record)

    def _ask(self, kind: str, contents: Mapping[int, RecordDict]) -> dict[int, RecordDict]:
        """The replies of those nodes that answered in time; the others are failures with a reason."""
        messages = [
            Message(content, dst_node_id=node, message_type=kind, ttl=self.deadline)
            for node, content in contents.items()
        ]
        nodes = list(contents)
        sent = dict(zip(self.grid.push_messages(messages), nodes)) if messages else {}
        waiting = {identifier: node for identifier, node in sent.items() if identifier}
        refused = set(nodes) - set(waiting.values())
        outcome: dict[int, RecordDict] = {}
        reasons: dict[int, str] = dict.fromkeys(refused, "not reached")
        end = time.monotonic() + self.deadline
        while waiting and time.monotonic() < end:
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_content():
                    outcome[node] = reply.content
                else:
                    reasons[node] = f"error {reply.error.code}: {reply.error.reason or 'unknown'}"
            if waiting:
                time.sleep(POLL)
        reasons |= dict.fromkeys(waiting.values(), f"no answer within {self.deadline:g} s")
        for node, reason in reasons.items():
            for name in [key.removeprefix("job.") for key in contents[node].config_records] or ["-"]:
                number = next((s for s, task in enumerate(self.tasks) if task.name == name), -1)
                self._fail(self.nodes.get(node, -1), number, f"{kind}: {reason}".splitlines()[0])
        return outcome

    def _fail(self, client: int, s: int, reason: str) -> None:
        names = {number: name for name, number in self.numbers.items()}
        task = self.tasks[s].name if s >= 0 else "-"
        self.notices.append(f'client {names.get(client, "?")}, task "{task}": {reason}')
