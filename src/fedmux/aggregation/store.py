"""One vector per (client, task) seen, and an up-to-date data-weighted sum of them.

Stale updates, MIFA's memory and SCAFFOLD's control variates are all such a store. Only clients seen take
space, in float32 or bfloat16, in memory or in a mapped file. The sum R_s = sum_i n_is h_is is updated in
O(changed), so that sum_i d_is h_is = R_s / sum_j n_js costs nothing; clients that join, leave or change
their data only change R.

With several processes each keeps the rows of its own clients and its own part of the sums; global results
(`mean`, `weighted`, `state`) are summed over the team, by all processes in the same order. Rows in memory are
on the device where updates arrive, or on the host while the device has no room.
"""

import os
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation.aggregator import Workspace
from fedmux.allocation import RoundState
from fedmux.distributed.memory import in_parts
from fedmux.model import Model
from fedmux.population import Floats, Ints

NumberFormat = Literal["float32", "bfloat16"]
Storage = Literal["memory", "disk"]

DTYPES: dict[NumberFormat, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}

DEVICE_SHARE = 0.4  # of a device's free memory that the rows may take when they grow
AT_A_TIME = 256  # rows
REFRESH = 1000  # rounds between two recomputations of the sums, against drift
SHRUNK = 1e-6  # a sum that fell this far below its peak is recomputed: it carries the peak's rounding


class Store:
    """The interface: one vector h_is for each client and task. `LowRankStore` is the other kind."""

    def __init__(self, precision: NumberFormat) -> None:
        self.dtype = DTYPES[precision]
        self.workspace = Workspace()

    def begin(self, state: RoundState, models: list[Model]) -> None:
        """Adapt to the round's population: pairs count with their current n, and only while available."""
        raise NotImplementedError

    def get(self, task: int, clients: Ints) -> Tensor:
        """The vectors of these clients (k x P, float32); zero for those never seen."""
        raise NotImplementedError

    def put(self, task: int, clients: Ints, values: Tensor, sizes: Ints, before: Tensor) -> None:
        """Replace the vectors of these clients, with `sizes` points; `before` is what `get` returned."""
        raise NotImplementedError

    def end(self) -> None:
        """The round is over: all its vectors were put. Every process calls this, again if memory ran out."""

    def forget(self, task: int) -> None:
        """Drop all vectors of a task."""
        raise NotImplementedError

    def mean(self, task: int) -> Tensor:
        """sum_i d_is h_is (P, float32); clients never seen count as zero."""
        raise NotImplementedError

    def weighted(self, task: int, weights: Floats) -> Tensor:
        """sum_i weights_i h_i over all clients seen (P)."""
        raise NotImplementedError

    def bytes(self, task: int) -> int:
        """Memory for a task: summed over the processes, what the server keeps."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """The whole store, at rank 0; independent of the number of processes except for the order of rows."""
        raise NotImplementedError

    def restore(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`; keeps what belongs to this process."""
        raise NotImplementedError


class ClientStore(Store):
    """Whole vectors, each a row."""

    def __init__(self, precision: NumberFormat, storage: Storage) -> None:
        super().__init__(precision)
        self.storage = storage
        self.row = np.zeros((0, 0), np.int64)  # N x S: row of each pair, -1 if never seen
        self.counted = np.zeros((0, 0))  # N x S: the n_is with which a pair is in the sum
        self.rows: list[Tensor] = []  # for each task: room x P
        self.used: list[int] = []  # rows in use
        self.sums: list[Tensor] = []  # R_s, float64
        self.peaks = np.zeros(0)  # S: the largest 1-norm of each sum since it was last recomputed
        self.total = np.zeros(0)  # S: sum_j n_js

    def begin(self, state: RoundState, models: list[Model]) -> None:
        people = state.population
        self._fit(people.sizes.shape, models)
        if self.storage == "memory" and self.workspace.device.type == "cuda":
            self._come_back()
        wanted = np.where(people.available & (self.row >= 0), people.sizes, 0).astype(np.float64)
        self.total = np.where(people.available, people.sizes, 0).sum(0).astype(np.float64)
        for task in range(len(models)):
            self._count(task, wanted[:, task] - self.counted[:, task])
            self.counted[:, task] = wanted[:, task]
        largest = torch.stack([part.abs().sum() for part in self.sums]).cpu().numpy()
        self.workspace.team.sum(largest)
        refresh = (state.round % REFRESH == REFRESH - 1) | (largest < SHRUNK * self.peaks)
        for task in np.flatnonzero(refresh).tolist():
            self.sums[task].zero_()
            self._count(task, wanted[:, task])
        self.peaks = np.where(refresh, largest, np.maximum(largest, self.peaks))

    def _count(self, task: int, weights: np.ndarray) -> None:
        """Add every client's vector to the sum, times its weight (N)."""
        clients = np.flatnonzero(weights)

        def add(rows: slice) -> None:
            part = clients[rows]
            self._add(task, weights[part], self.get(task, part))

        in_parts(len(clients), add, self.workspace.release, most=AT_A_TIME)

    def _fit(self, shape: tuple[int, int], models: list[Model]) -> None:
        if self.row.shape != shape:
            row, counted = np.full(shape, -1, np.int64), np.zeros(shape)
            kept = tuple(slice(0, n) for n in self.row.shape)
            row[kept], counted[kept] = self.row, self.counted
            self.row, self.counted = row, counted
        self.peaks = np.pad(self.peaks, (0, shape[1] - len(self.peaks)))
        for task in range(len(self.rows), shape[1]):
            size = len(models[task].parameters)
            total = torch.zeros(size, dtype=torch.float64, device=self.workspace.device)
            self.rows.append(self._room(task, 0, size))
            self.used.append(0)
            self.sums.append(total)

    def get(self, task: int, clients: Ints) -> Tensor:
        row = self.row[clients, task]
        values = torch.zeros(len(clients), self.rows[task].shape[1], device=self.workspace.device)
        seen = np.flatnonzero(row >= 0)
        if len(seen):
            kept = self.rows[task][torch.from_numpy(row[seen])]
            values[torch.from_numpy(seen)] = kept.to(self.workspace.device, torch.float32)
        return values

    def put(self, task: int, clients: Ints, values: Tensor, sizes: Ints, before: Tensor) -> None:
        row = self.row[clients, task]
        new = np.flatnonzero(row < 0)
        row[new] = self.used[task] + np.arange(len(new))
        self._grow(task, self.used[task] + len(new))
        kept = values.to(self.dtype)  # the sum holds what is stored, not what was sent
        change = _times(sizes.astype(np.float64), kept.double() - before.double())
        rows = self.rows[task]
        rows[torch.from_numpy(row)] = kept.to(rows.device)
        self.sums[task] += change  # from here on nothing allocates memory
        self.row[clients, task], self.counted[clients, task] = row, sizes
        self.used[task] += len(new)

    def forget(self, task: int) -> None:
        self.rows[task] = self._room(task, 0, self.rows[task].shape[1])
        self.sums[task].zero_()
        self.row[:, task], self.counted[:, task] = -1, 0.0
        self.used[task], self.peaks[task] = 0, 0.0

    def mean(self, task: int) -> Tensor:
        total = self.sums[task].clone()
        self.workspace.team.sum(total)
        return (total / max(self.total[task], 1.0)).float()

    def weighted(self, task: int, weights: Floats) -> Tensor:
        clients = np.flatnonzero(self.row[:, task] >= 0)
        result = torch.zeros(self.rows[task].shape[1], device=self.workspace.device)

        def add(rows: slice) -> None:
            part = clients[rows]
            result.add_(torch.from_numpy(weights[part]).to(result) @ self.get(task, part))

        in_parts(len(clients), add, self.workspace.release, most=AT_A_TIME)
        self.workspace.team.sum(result)
        return result

    def _add(self, task: int, weights: np.ndarray, values: Tensor) -> None:
        self.sums[task] += _times(weights, values.double())

    def _grow(self, task: int, wanted: int) -> None:
        room, size = self.rows[task].shape
        if wanted > room:
            rows = self._room(task, max(wanted, 2 * room, 8), size)
            if self.storage == "memory":
                rows[:room] = self.rows[task]  # a mapped file keeps its content when it grows
            self.rows[task] = rows

    def _room(self, task: int, rows: int, size: int) -> Tensor:
        needed = rows * size * self.dtype.itemsize
        if self.storage == "memory" or rows == 0:
            try:
                return torch.zeros(rows, size, dtype=self.dtype, device=self._device(needed))
            except torch.OutOfMemoryError:  # taken by others meanwhile
                return torch.zeros(rows, size, dtype=self.dtype)
        assert self.workspace.scratch is not None, "a store on disk needs a folder"
        self.workspace.scratch.mkdir(parents=True, exist_ok=True)
        path = self.workspace.scratch / f"store-{task}.bin"
        with path.open("ab") as file:  # torch.from_file would extend it too, but overwrites the first byte
            os.posix_fallocate(file.fileno(), 0, needed)  # a full disk is an error here, not a SIGBUS later
        return torch.from_file(str(path), shared=True, size=rows * size, dtype=self.dtype).view(rows, size)

    def _come_back(self) -> None:
        """Move rows that did not fit on the device back to it, if there is room now."""
        for task, rows in enumerate(self.rows):
            if rows.device.type == "cpu":
                try:
                    self.rows[task] = rows.to(self._device(rows.nbytes))
                except torch.OutOfMemoryError:
                    return

    def _device(self, needed: int) -> torch.device:
        device = self.workspace.device
        if device.type == "cuda" and needed > DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
            return torch.device("cpu")
        return device

    def bytes(self, task: int) -> int:
        """Rows in use and, in the first process, the sum."""
        row = self.rows[task]
        own = self.sums[task].nbytes if self.workspace.team.rank == 0 else 0
        return self.used[task] * row.shape[1] * row.element_size() + own

    def state(self) -> dict[str, Tensor]:
        row, counted, team = self.row.copy(), self.counted.copy(), self.workspace.team
        used = np.zeros((team.size, len(self.used)), np.int64)
        used[team.rank] = self.used
        team.sum(used, counted)
        row = np.where(row >= 0, row + used[: team.rank].sum(0) + 1, 0)  # 0: not here
        team.sum(row)
        arrays = {"row": row - 1, "counted": counted, "peaks": self.peaks}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for task, (rows, mine, part) in enumerate(zip(self.rows, self.used, self.sums)):
            total = part.clone()
            team.sum(total)
            tensors[f"rows.{task}"] = team.gather(rows[:mine].cpu())
            tensors[f"sum.{task}"] = total.cpu()
        return tensors

    def restore(self, state: dict[str, Tensor]) -> None:
        if "row" not in state:
            return
        row = state["row"].numpy()
        mine = (row >= 0) & (True if self.workspace.owned is None else self.workspace.owned)
        self.row = np.full(row.shape, -1, np.int64)
        self.counted = np.where(mine, state["counted"].numpy(), 0.0)
        self.peaks = state["peaks"].numpy().copy() if "peaks" in state else np.zeros(row.shape[1])
        self.rows, self.used, self.sums = [], [], []
        for task in range(row.shape[1]):
            clients = np.flatnonzero(mine[:, task])
            clients = clients[np.argsort(row[clients, task])]
            rows = state[f"rows.{task}"]
            self.row[clients, task] = np.arange(len(clients))
            self.used.append(len(clients))
            self.rows.append(self._room(task, len(clients), rows.shape[1]))
            self.rows[task].copy_(rows[torch.from_numpy(row[clients, task])])
            # The drift of an old sum is part of the run's state; which process holds it does not matter.
            total = state[f"sum.{task}"].to(self.workspace.device)
            self.sums.append(total.clone() if self.workspace.team.rank == 0 else torch.zeros_like(total))


def _times(weights: np.ndarray, values: Tensor) -> Tensor:
    return torch.from_numpy(weights).to(values.device) @ values
