"""The interface that every aggregator shares: begin a round, add updates as they arrive, finish.

Updates are G = w_start - w_end (they include the learning rate) and are summed as they arrive, so memory
does not grow with the number of jobs. A subclass defines the weight of each job; one with per-client state
also overrides `take`, `finish`, `state` and `restore`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation.local_rule import LocalRule
from fedmux.allocation import Assignment, RoundState
from fedmux.distributed.memory import Release, in_parts, nothing
from fedmux.distributed.team import ALONE, Team
from fedmux.errors import FedmuxError
from fedmux.importing import closest
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Updates:
    """Some finished jobs of one task: rows of the round's assignment, and their results."""

    task: int
    rows: Ints  # k: indices into the assignment
    parameters: Tensor  # k x P: w_start - w_end
    buffers: Tensor  # k x Q: buffers after local training, float64
    steps: Ints  # k: gradient steps taken
    losses: Floats | None = None  # k: the loss each client started from; None: not asked for

    def part(self, rows: slice | Ints) -> "Updates":
        """Some of them."""
        tensors = rows if isinstance(rows, slice) else torch.from_numpy(rows)
        return Updates(
            self.task,
            self.rows[rows],
            self.parameters[tensors],
            self.buffers[tensors],
            self.steps[rows],
            None if self.losses is None else self.losses[rows],
        )


@dataclass(frozen=True, eq=False)
class Workspace:
    """The device, folder and processes that an aggregator works with."""

    scratch: Path | None = None  # a folder for large state
    device: torch.device = field(default=torch.device("cpu"))  # where updates arrive
    team: Team = ALONE  # the processes that share the round
    owned: Bools | None = None  # N x S: pairs whose state is kept in this process; None: all
    release: Release = nothing  # frees device memory that can be rebuilt


class Weighed(NamedTuple):
    """Weighted sums of some updates of a task."""

    task: int
    weight: float
    parameters: Tensor  # P
    buffer_weight: float
    buffers: Tensor  # Q


class Aggregator:
    """A weighted sum of the updates: w_s <- w_s - sum_i c_is G_is.

    With several processes each adds the updates of its own jobs, so each holds only partial sums of a round.
    `summed` names the attributes of a class that are partial sums, arrays or lists of arrays; before `finish`
    they are summed over the processes.
    """

    summed: ClassVar[tuple[str, ...]] = ("total", "sums", "_buffer_total", "_buffer_sums")

    local_rule: LocalRule | None = None
    remembers = False  # whether it keeps state for each client
    workspace = Workspace()

    def __init_subclass__(cls) -> None:
        if "exchange" in vars(cls):  # it would be ignored, and its sums would be partial
            raise TypeError(f"{cls.__name__}.exchange is not called; name the arrays to add up in `summed`")
        if isinstance(cls.summed, str):
            raise TypeError(f'{cls.__name__}.summed is the text "{cls.summed}"; write ("{cls.summed}",)')

    def prepare(self, state: RoundState, models: list[Model]) -> None:
        """Adapt to the round's population, before signals and draw."""

    def begin(self, state: RoundState, assignment: Assignment, models: list[Model]) -> None:
        shares = state.population.shares[assignment.client, assignment.task]
        self.assignment = assignment
        self.weights = self.job_weights(assignment, shares)  # J
        self.total = np.zeros(len(models))  # S: weight that has arrived
        self.sums = [torch.zeros_like(model.parameters) for model in models]
        self._buffer_weights = assignment.count * shares  # J
        self._buffer_total = np.zeros(len(models))
        self._buffer_sums = [torch.zeros_like(model.buffers) for model in models]

    def job_weights(self, assignment: Assignment, shares: Floats) -> Floats:
        """c of each job (J)."""
        raise NotImplementedError

    def add(self, updates: Updates) -> None:
        """Add some updates, in parts if the device lacks the memory to do it at once."""
        in_parts(len(updates.rows), lambda rows: self.take(updates.part(rows)), self.workspace.release)

    def take(self, updates: Updates) -> None:
        """Add a part of the updates. Allocate memory before any change: a part that ran out is retried."""
        self.count(self.weighed(updates))

    def weighed(self, updates: Updates) -> Weighed:
        """Weighted sums over updates."""
        weights, own = self.weights[updates.rows], self._buffer_weights[updates.rows]
        parameters = torch.from_numpy(weights).to(updates.parameters) @ updates.parameters
        buffers = torch.from_numpy(own).to(updates.buffers) @ updates.buffers
        return Weighed(updates.task, weights.sum(), parameters, own.sum(), buffers)

    def count(self, part: Weighed) -> None:
        """Add to the round's sums; allocates no memory."""
        self.total[part.task] += part.weight
        self.sums[part.task] += part.parameters
        self._buffer_total[part.task] += part.buffer_weight
        self._buffer_sums[part.task] += part.buffers

    def parts(self) -> list[Tensor | np.ndarray]:
        """The partial sums of this process: every array named in `summed` by the class or its bases."""
        names = dict.fromkeys(name for kind in type(self).__mro__ for name in vars(kind).get("summed", ()))
        parts: list[Tensor | np.ndarray] = []
        for name in names:
            named = f"{type(self).__name__}.summed names {name}, which"
            if not hasattr(self, name):
                raise FedmuxError(f"{named} begin() does not set{closest(name, vars(self))}; set it there")
            value = getattr(self, name)
            for part in value if isinstance(value, list) else [value]:
                if not isinstance(part, Tensor | np.ndarray):
                    kind = type(part).__name__
                    raise FedmuxError(f"{named} is a {kind}; it must be an array or a list of arrays")
                parts.append(part)
        return parts

    def finish(self, models: list[Model]) -> list[Model]:
        return [
            Model(model.parameters - self.step(task), self.buffers(task, model))
            for task, model in enumerate(models)
        ]

    def step(self, task: int) -> Tensor:
        """What is subtracted from the global parameters of a task (P)."""
        return self.sums[task]

    def step_sizes(self) -> Floats:
        """||H_s||_1 of each task: the sum of the coefficients applied ([P1] section V)."""
        return self.total

    def buffers(self, task: int, model: Model) -> Tensor:
        """Averaged with weights counts * d, normalised over those that came back; unchanged if none did."""
        if self._buffer_total[task] == 0:
            return model.buffers
        return self._buffer_sums[task] / self._buffer_total[task]

    def stale(self, task: int, clients: Ints) -> Tensor:
        """The last update of each of these clients (k x P), for signals that compare with it."""
        raise NotImplementedError(f"{type(self).__name__} keeps no updates")

    def stale_weights(self, state: RoundState) -> Floats | None:
        """N x S: by what a step multiplies `stale` updates, its control variates; None: it has none."""
        return None

    def forget(self, task: int) -> None:
        """Drop the state kept for a task's clients: its model has diverged and was set back."""

    def server_bytes(self, task: int) -> int:
        """Server memory used for a task, not counting its model."""
        return 0

    def state(self) -> dict[str, Tensor]:
        """State that must survive a restart, not counting the models."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
