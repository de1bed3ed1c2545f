"""One vector for each (client, task) seen, and their data-weighted sum kept up to date.

Stale updates, MIFA's memory and SCAFFOLD's control variates are all such a store. Only clients seen take
room, in float32 or bfloat16, in memory or in a mapped file. The sum R_s = sum_i n_is h_is is updated in
O(changed), so that sum_i d_is h_is = R_s / sum_j n_js costs nothing; clients that join, leave or change
their data only move R.
"""

import os
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedmux.allocation import RoundState
from fedmux.flat import Model
from fedmux.population import Ints

Precision = Literal["float32", "bfloat16"]
Storage = Literal["memory", "disk"]

REFRESH = 1000  # rounds between two recomputations of the sums, against drift


class ClientStore:
    def __init__(self, precision: Precision, storage: Storage) -> None:
        self.dtype = torch.float32 if precision == "float32" else torch.bfloat16
        self.storage = storage
        self.scratch: Path | None = None  # where mapped files lie
        self.row = np.zeros((0, 0), np.int64)  # N x S: row of each pair, -1 if never seen
        self.counted = np.zeros((0, 0))  # N x S: the n_is with which a pair stands in the sum
        self.rows: list[Tensor] = []  # for each task: room x P
        self.used: list[int] = []  # rows in use
        self.sums: list[Tensor] = []  # R_s, float64
        self.total = np.zeros(0)  # S: sum_j n_js

    def begin(self, state: RoundState, models: list[Model]) -> None:
        """Follow the population: pairs count with their present n, and only while they are available."""
        people = state.population
        self._fit(people.sizes.shape, models)
        wanted = np.where(people.available & (self.row >= 0), people.sizes, 0).astype(np.float64)
        self.total = np.where(people.available, people.sizes, 0).sum(0).astype(np.float64)
        refresh = state.round % REFRESH == REFRESH - 1
        for task in range(len(models)):
            if refresh:
                self.sums[task].zero_()
            change = wanted[:, task] - (0 if refresh else self.counted[:, task])
            clients = np.flatnonzero(change)
            for part in np.array_split(clients, max(1, -(-len(clients) // 256))):
                if len(part):
                    self._add(task, change[part], self.get(task, part))
        self.counted = wanted

    def _fit(self, shape: tuple[int, int], models: list[Model]) -> None:
        if self.row.shape != shape:
            row, counted = np.full(shape, -1, np.int64), np.zeros(shape)
            kept = tuple(slice(0, n) for n in self.row.shape)
            row[kept], counted[kept] = self.row, self.counted
            self.row, self.counted = row, counted
        for task in range(len(self.rows), shape[1]):
            size = len(models[task].parameters)
            self.rows.append(self._room(task, 0, size))
            self.used.append(0)
            self.sums.append(torch.zeros(size, dtype=torch.float64))

    def get(self, task: int, clients: Ints) -> Tensor:
        """The vectors of some clients (k x P, float32); zero for those never seen."""
        row = self.row[clients, task]
        values = torch.zeros(len(clients), self.rows[task].shape[1])
        seen = np.flatnonzero(row >= 0)
        if len(seen):
            values[torch.from_numpy(seen)] = self.rows[task][torch.from_numpy(row[seen])].float()
        return values

    def put(self, task: int, clients: Ints, values: Tensor, sizes: Ints, before: Tensor) -> None:
        """Replace the vectors of some clients that hold `sizes` points; `before` is what `get` gave."""
        new = np.flatnonzero(self.row[clients, task] < 0)
        if len(new):
            self.row[clients[new], task] = self.used[task] + np.arange(len(new))
            self.used[task] += len(new)
            self._grow(task)
        kept = values.to(self.dtype)  # the sum holds what is stored, not what was sent
        self.rows[task][torch.from_numpy(self.row[clients, task])] = kept
        self._add(task, sizes.astype(np.float64), kept.double() - before.double())
        self.counted[clients, task] = sizes

    def mean(self, task: int) -> Tensor:
        """sum_i d_is h_is (P, float32); clients never seen count as zero."""
        return (self.sums[task] / max(self.total[task], 1.0)).float()

    def weighted(self, task: int, weights: np.ndarray) -> Tensor:
        """sum_i weights_i h_i over all clients seen (P)."""
        clients = np.flatnonzero(self.row[:, task] >= 0)
        result = torch.zeros(self.rows[task].shape[1])
        for part in np.array_split(clients, max(1, -(-len(clients) // 256))):
            if len(part):
                result += torch.from_numpy(weights[part]).float() @ self.get(task, part)
        return result

    def _add(self, task: int, weights: np.ndarray, values: Tensor) -> None:
        self.sums[task] += torch.from_numpy(weights) @ values.double()

    def _grow(self, task: int) -> None:
        room, size = self.rows[task].shape
        if self.used[task] > room:
            old, self.rows[task] = self.rows[task], self._room(task, max(self.used[task], 2 * room, 8), size)
            if self.storage == "memory":
                self.rows[task][:room] = old  # a mapped file keeps its content when it grows

    def _room(self, task: int, rows: int, size: int) -> Tensor:
        if self.storage == "memory" or rows == 0:
            return torch.zeros(rows, size, dtype=self.dtype)
        assert self.scratch is not None, "a store on disk needs a folder"
        self.scratch.mkdir(exist_ok=True)
        path = self.scratch / f"store-{task}.bin"
        needed = rows * size * self.dtype.itemsize
        with path.open("ab") as file:  # torch.from_file would extend it too, but spoils the first byte
            os.posix_fallocate(file.fileno(), 0, needed)  # a full disk is an error here, not a SIGBUS later
        return torch.from_file(str(path), shared=True, size=rows * size, dtype=self.dtype).view(rows, size)

    def bytes(self, task: int) -> int:
        """What the server keeps for a task: rows in use and the sum."""
        row = self.rows[task]
        return self.used[task] * row.shape[1] * row.element_size() + self.sums[task].nbytes

    def state(self) -> dict[str, Tensor]:
        tensors = {"row": torch.from_numpy(self.row), "counted": torch.from_numpy(self.counted)}
        for task, (rows, used, total) in enumerate(zip(self.rows, self.used, self.sums)):
            tensors[f"rows.{task}"], tensors[f"sum.{task}"] = rows[:used], total
        return tensors

    def restore(self, state: dict[str, Tensor]) -> None:
        if "row" not in state:
            return
        self.row, self.counted = state["row"].numpy().copy(), state["counted"].numpy().copy()
        self.rows, self.used, self.sums = [], [], []
        for task in range(self.row.shape[1]):
            rows = state[f"rows.{task}"]
            self.used.append(len(rows))
            self.rows.append(self._room(task, len(rows), rows.shape[1]))
            self.rows[task].copy_(rows)
            self.sums.append(state[f"sum.{task}"].clone())
