"""The processes that train one run together: single program, multiple data, on torch.distributed.

Every process holds the models and makes the same plan, since plans follow from the seed; client work is
divided, and partial sums are added up here. A team of one has nothing to add. Only tensors and numbers are
sent; nothing is ever unpickled.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmux.errors import FedmuxError
from fedmux.importing import first_line
from fedmux.population import Bools, Ints


class TeamLost(FedmuxError):
    """Another process of the team failed or died: the run cannot continue."""

    def __init__(self, reason: str) -> None:
        """The reason's first line; any others are what a user's own code said there."""
        line, _, self.whole = reason.partition("\n")
        super().__init__(line)


class Team:
    """The interface, and a team of one; `Processes` is a real team."""

    rank = 0
    size = 1

    def sum(self, *parts: Tensor | np.ndarray) -> None:
        """Sum each array over the team, in place."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is true in any process."""
        return flag

    def gather(self, rows: Tensor) -> Tensor:
        """At rank 0: all processes' rows (k x P, on the CPU), concatenated by rank. Elsewhere: its own."""
        return rows

    def share(self, tensors: dict[str, Tensor], table: dict[str, Any]) -> tuple[dict[str, Tensor], Any]:
        """Rank 0's tensors and JSON values, in every process."""
        return tensors, table

    def agree(self, what: str, *arrays: np.ndarray) -> None:
        """TeamLost unless all processes have the same arrays."""

    def unlike(self, figures: Ints) -> Bools:
        """Processes x k: which of these k numbers each process has other than the first one."""
        return np.zeros((1, len(figures)), bool)


ALONE = Team()


class Processes(Team):
    """A process group of torch.distributed; `reason` says why another process is gone, if known."""

    def __init__(self, reason: Callable[[], str]) -> None:
        import torch.distributed as dist

        self.rank, self.size, self._reason = dist.get_rank(), dist.get_world_size(), reason

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # a peer's connection broke or timed out
            raise TeamLost(self._reason() or first_line(error)) from error

    def sum(self, *parts: Tensor | np.ndarray) -> None:
        import torch.distributed as dist

        with self._together():
            for part in parts:
                tensor = torch.from_numpy(part) if isinstance(part, np.ndarray) else part
                if tensor.numel():
                    dist.all_reduce(tensor)

    def any(self, flag: bool) -> bool:
        count = np.array([int(flag)])
        self.sum(count)
        return bool(count[0])

    def gather(self, rows: Tensor) -> Tensor:
        import torch.distributed as dist

        counts = np.zeros(self.size, np.int64)
        counts[self.rank] = len(rows)
        self.sum(counts)
        with self._together():
            if self.rank:
                if rows.numel():
                    dist.send(rows.contiguous(), 0)
                return rows
            parts = [rows]
            for rank in range(1, self.size):
                part = rows.new_empty(int(counts[rank]), *rows.shape[1:])
                if part.numel():
                    dist.recv(part, rank)
                parts.append(part)
        return torch.cat(parts)

    def share(self, tensors: dict[str, Tensor], table: dict[str, Any]) -> tuple[dict[str, Tensor], Any]:
        shapes = {name: [str(t.dtype).removeprefix("torch."), *t.shape] for name, t in tensors.items()}
        head = json.loads(self._share_text(json.dumps({"tensors": shapes, "table": table})))
        shared = {}
        for name, (kind, *shape) in head["tensors"].items():
            room = torch.empty(shape, dtype=getattr(torch, kind))
            shared[name] = self._broadcast(tensors[name].contiguous() if self.rank == 0 else room)
        return shared, head["table"]

    def _share_text(self, text: str) -> str:
        data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        length = self._broadcast(torch.tensor([len(data)]))
        return bytes(
            self._broadcast(data if self.rank == 0 else torch.empty(int(length), dtype=torch.uint8)).numpy()
        ).decode()

    def _broadcast(self, tensor: Tensor) -> Tensor:
        import torch.distributed as dist

        with self._together():
            if tensor.numel():
                # As bytes: not every backend supports every dtype.
                dist.broadcast(tensor.view(-1).view(torch.uint8), 0)
        return tensor

    def agree(self, what: str, *arrays: np.ndarray) -> None:
        digest = hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=8).digest()
        others = np.flatnonzero(self.unlike(np.frombuffer(digest, np.int64))).tolist()
        if others:
            raise TeamLost(
                f"processes {others} got a different {what} than process 0; all need the same experiment, "
                "versions and kind of processor"
            )

    def unlike(self, figures: Ints) -> Bools:
        table = np.zeros((self.size, len(figures)), np.int64)
        table[self.rank] = figures
        self.sum(table)
        unlike: Bools = table != table[0]
        return unlike


def from_environment() -> bool:
    """Whether torchrun (or similar) started this process as one of several."""
    given = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    return all(value.isdecimal() for value in given) and int(given[1]) > 1
