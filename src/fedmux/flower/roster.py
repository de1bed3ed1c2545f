"""Who is there: nodes that come and go, and the clients behind them, each with its number in the fleet.

A client is known by its own id, never by its node's. Its number is kept, so that it has the same one after a
restart of its node or of the server.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict

from fedmux.fleet.journal import Journal
from fedmux.flower.wire import HELLO, Hello
from fedmux.population import Population
from fedmux.runs.atomic import write_atomically
from fedmux.runs.reading import read_clients
from fedmux.runs.rounds import Failure

MOST_REST = 16  # rounds


class Roster:
    def __init__(
        self,
        tasks: list[str],
        clients: int,
        journal: Journal,
        file: Path | None = None,
        known: Population | None = None,
    ) -> None:
        """`file` keeps the clients' numbers; `known` is what they had in an earlier process."""
        self.tasks, self.journal, self.file = tasks, journal, file
        self.numbers: dict[str, int] = read_clients(file) if file else {}  # by a client's own id
        self.nodes: dict[int, int] = {}  # node -> number of its client; only nodes that are there
        none = np.zeros((clients, len(tasks)), np.int64)
        self.population = known or Population(np.zeros(clients, np.int64), none, none > 0)
        self.round = -1  # the last one begun
        self._replaced: set[int] = set()  # nodes that are not asked any more, as long as they are there
        self._late: dict[int, tuple[int, int]] = {}  # client: times late in a row, the round it sits out to
        self._shy: dict[int, tuple[int, int]] = {}  # the same of nodes that did not say who they are
        self._reported: set[int] = set()  # clients that were there when `changes` was last asked

    def strangers(self, online: set[int]) -> list[int]:
        """Nodes that are there and have to be asked who they are."""
        self._replaced &= online  # one that goes and comes back is asked again
        present = online - self._replaced
        self.nodes = {node: number for node, number in self.nodes.items() if node in present}
        resting = {node for node, (_, until) in self._shy.items() if until > self.round + 1}
        return [node for node in present if node not in self.nodes and node not in resting]

    def greet(self, node: int, reply: RecordDict) -> None:
        """Take in a node that has answered who it is."""
        try:
            hello = Hello.read(reply)
        except ValueError as error:
            self._replaced.add(node)
            self.journal.fail(Failure("?", "-", HELLO, "missing", f"node {node}: {error}"))
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
            if self.file:
                write_atomically(self.file, json.dumps(self.numbers, indent=1).encode())
        number = self.numbers[name]
        before = [other for other, its in self.nodes.items() if its == number]
        if before:
            self._replaced.update(before)
            self.journal.notice(f"client {name} has joined as another node; its earlier node is ignored")
        self.nodes = {other: its for other, its in self.nodes.items() if other not in before}
        self.nodes[node] = number
        self._learn(number, hello)

    def _number(self, name: str) -> int:
        """An id that is a number of the fleet stays it, so that a federation can equal a simulation."""
        taken = set(self.numbers.values())
        free = [number for number in range(len(self.population.capacity)) if number not in taken]
        own = int(name) if name.isascii() and name.isdigit() else -1
        return own if own in free else free[0]

    def _learn(self, number: int, hello: Hello) -> None:
        """What a client has; a new population, so that others can tell that it has changed."""
        people = self.population
        capacity, sizes, eligible = people.capacity.copy(), people.sizes.copy(), people.eligible.copy()
        capacity[number] = hello.processors
        sizes[number] = [hello.sizes.get(task, 0) for task in self.tasks]
        eligible[number] = sizes[number] > 0
        self.population = Population(capacity, sizes, eligible)

    def silent(self, asked: Iterable[int]) -> None:
        """Nodes that were asked and did not say who they are sit out, like late clients."""
        for node in asked:
            if node not in self.nodes and node not in self._replaced:
                self._shy[node] = self._rest(self._shy.get(node))

    def free(self, busy: set[int]) -> Population:
        """Clients that are neither busy nor sitting out; where all others are busy, those that sit out."""
        free = [number for node, number in self.nodes.items() if node not in busy]
        rested = [number for number in free if self._late.get(number, (0, 0))[1] <= self.round + 1]
        there = np.zeros(len(self.population.capacity), bool)
        there[rested or free] = True
        return replace(self.population, eligible=self.population.eligible & there[:, None])

    def late(self, client: int) -> None:
        """It sits out for some rounds: one that hangs costs a deadline each time."""
        self._late[client] = self._rest(self._late.get(client))

    def answered(self, node: int) -> None:
        self._late.pop(self.nodes.get(node, -1), None)

    def _rest(self, before: tuple[int, int] | None) -> tuple[int, int]:
        """Times in a row, and the round to sit out to: 1, 3, 7, 15 rounds."""
        times = (before or (0, 0))[0] + 1
        return times, self.round + min(2**times, MOST_REST)

    def name(self, client: int) -> str:
        """A client's own id."""
        return next(name for name, number in self.numbers.items() if number == client)

    def changes(self) -> dict[str, list[Any]]:
        """Numbers of the clients that joined and left since the last call."""
        now = set(self.nodes.values())
        before, self._reported = self._reported, now
        return {"joined": sorted(now - before), "left": sorted(before - now)}
