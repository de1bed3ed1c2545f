"""Local training of one client: the tight loop, and the plain reference loop that it must match.

The tight loop keeps one set of parameters, views of one flat vector, and pre-sliced tensors; it computes
gradients with `autograd.grad` and steps with `_foreach_add_`: no DataLoader, no module copies. Both follow
torch.optim.SGD's order: clip, weight decay, momentum, step.
"""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation import LocalRule
from fedmux.distributed.memory import patiently
from fedmux.errors import FedmuxError
from fedmux.fleet.batches import batches
from fedmux.fleet.engine import CPU, Engine, whole
from fedmux.importing import FAILURES, first_line
from fedmux.model import Layout, Model, read_buffers, write_buffers
from fedmux.population import Ints
from fedmux.randomness import Stream, torch_seed
from fedmux.tasks.task import Task

CHUNK_BYTES = 28 * 2**20  # updates held at a time; beyond 32 MiB malloc maps fresh pages each time

Chunk = tuple[Ints, Tensor, Tensor]  # indices into the clients asked for, updates (k x P), buffers (k x Q)


class Trainer(Protocol):
    """One way to train the clients of one task."""

    def updates(self, model: Model, clients: Ints, round: int, rule: LocalRule | None) -> Iterator[Chunk]:
        """Every client's update w_start - w_end and its buffers afterwards, in bounded chunks."""
        ...

    def release(self) -> None:
        """Free memory that can be rebuilt."""
        ...


class TightLoop:
    """Trains clients of one task, one at a time, on the task's own module."""

    def __init__(self, task: Task, index: int, seed: int, engine: Engine = CPU) -> None:
        self.task, self.index, self.seed, self.engine = task, index, seed, engine
        self._rooms: list[Tensor] = []
        self.flat = task.layout.bind()
        self.parameters: list[Tensor] = list(task.layout.parameters.values())
        self.buffers = list(task.layout.buffers.values())

    def updates(
        self, model: Model, clients: Ints, round: int, rule: LocalRule | None = None
    ) -> Iterator[Chunk]:
        limit = max(1, CHUNK_BYTES // (4 * max(1, len(model.parameters))))
        devices = [self.engine.device] if self.engine.device.type == "cuda" else []
        for begin in range(0, len(clients), limit):
            chunk = np.arange(begin, min(begin + limit, len(clients)))
            updates = self._room(limit, model)[: len(chunk)]
            buffers = torch.empty(
                len(chunk), len(model.buffers), dtype=torch.float64, device=model.buffers.device
            )
            with torch.random.fork_rng(devices=devices):
                for client, update, after in zip(clients[chunk].tolist(), updates, buffers):
                    work = partial(self.update, model, client, round, rule, out=update)
                    try:
                        with self.engine.computing():
                            after.copy_(patiently(work)[1])
                    except FedmuxError:
                        raise
                    except FAILURES as error:  # a user's module or loss can raise anything
                        raise FedmuxError(
                            f'task "{self.task.name}": local training of client {client} failed: '
                            f"{first_line(error)}"
                        ) from error
                del update
            yield chunk, updates, buffers

    def release(self) -> None:
        """Nothing to free: it holds a few chunks at most."""

    def _room(self, rows: int, model: Model) -> Tensor:
        """Memory for a chunk: an earlier chunk's if no longer in use, since fresh pages take time."""
        size = len(model.parameters)
        for room in self._rooms:
            if room.shape == (rows, size) and holders(room) == 1:
                return room
        self._rooms = [*self._rooms[-2:], torch.empty(rows, size, device=model.parameters.device)]
        return self._rooms[-1]

    def update(
        self,
        model: Model,
        client: int,
        round: int,
        rule: LocalRule | None = None,
        out: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """w_start - w_end (P), written to `out` if given, and the buffers afterwards (Q)."""
        task, local = self.task, self.task.local
        start, correction = self._views(model, client, rule)
        rate = task.learning_rate(round)
        self.flat.copy_(model.parameters)
        write_buffers(self.buffers, model.buffers)
        task.module.train()
        # Not torch.manual_seed, which spends 2 ms looking for other devices.
        seed = torch_seed(self.seed, Stream.MODULE, round=round, client=client, task=self.index)
        torch.default_generator.manual_seed(seed)
        if self.engine.device.type == "cuda":
            torch.cuda.default_generators[self.engine.device.index].manual_seed(seed)
        velocity: list[Tensor] | None = None
        for rows in batches(task, self.index, client, round, self.seed):
            loss = task.loss(whole(task.module(task.x[rows])), task.y[rows]).mean()
            gradients = list(
                torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
            )
            with torch.no_grad():
                if rule is not None:
                    gradients = [
                        rule.gradient(*each) for each in zip(gradients, self.parameters, start, correction)
                    ]
                if local.clip is not None:
                    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
                    torch._foreach_mul_(gradients, torch.clamp(local.clip / (norm + 1e-6), max=1.0))
                if local.weight_decay:
                    torch._foreach_add_(gradients, self.parameters, alpha=local.weight_decay)
                if local.momentum:
                    if velocity is None:
                        velocity = gradients
                    else:
                        torch._foreach_mul_(velocity, local.momentum)
                        torch._foreach_add_(velocity, gradients)
                    gradients = velocity
                torch._foreach_add_(self.parameters, gradients, alpha=-rate)
        return torch.sub(model.parameters, self.flat, out=out), read_buffers(self.buffers)

    def _views(
        self, model: Model, client: int, rule: LocalRule | None
    ) -> tuple[list[Tensor], list[Tensor] | list[None]]:
        """The start and the correction, split like the parameters."""
        if rule is None:
            return [], []
        start = self.task.layout.views(model.parameters)
        correction = rule.corrections(self.index, np.array([client]))
        return start, [None] * len(start) if correction is None else self.task.layout.views(correction[0])


def holders(tensor: Tensor) -> int:
    """Number of tensors that share its memory, including itself."""
    storage = tensor.untyped_storage()
    return int(torch._C._storage_Use_Count(storage._cdata)) - 1  # this handle is one more


def reference_update(
    task: Task,
    index: int,
    seed: int,
    model: Model,
    client: int,
    round: int,
    rule: LocalRule | None = None,
) -> tuple[Tensor, Tensor]:
    """The same update, textbook style: a copy of the module and torch.optim.SGD."""
    module = copy.deepcopy(task.module)
    layout = Layout(module)
    layout.write(model)
    module.train()
    local = task.local
    optimiser = torch.optim.SGD(
        layout.parameters.values(),
        lr=task.learning_rate(round),
        momentum=local.momentum,
        weight_decay=local.weight_decay,
    )
    torch.manual_seed(torch_seed(seed, Stream.MODULE, round=round, client=client, task=index))
    for rows in batches(task, index, client, round, seed):
        optimiser.zero_grad()
        task.loss(module(task.x[rows]), task.y[rows]).mean().backward()
        if rule is not None:
            parameters = list(layout.parameters.values())
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            correction = rule.corrections(index, np.array([client]))
            extra = None if correction is None else correction[0]
            flat = rule.gradient(flat, layout.read().parameters, model.parameters, extra)
            for parameter, part in zip(parameters, layout.views(flat)):
                parameter.grad = part
        if local.clip is not None:
            torch.nn.utils.clip_grad_norm_(layout.parameters.values(), local.clip)
        optimiser.step()
    trained = layout.read()
    return model.parameters - trained.parameters, trained.buffers
