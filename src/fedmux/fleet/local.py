"""Local training of one client: the tight loop, and the plain reference loop that it must equal.

The tight loop keeps one set of parameters, views of one flat vector, and pre-sliced tensors; it takes
gradients with `autograd.grad` and steps with `_foreach_add_`: no DataLoader, no module copies. Both follow
torch.optim.SGD's order: clip, weight decay, momentum, step.
"""

import copy

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation import LocalRule
from fedmux.flat import Layout, Model, read_buffers, write_buffers
from fedmux.randomness import Stream, generator, torch_seed
from fedmux.tasks.task import Task


def batches(task: Task, index: int, client: int, round: int, seed: int) -> list[Tensor]:
    """Row numbers of each mini-batch, all epochs in turn; a function of its arguments alone."""
    start, end = int(task.offsets[client]), int(task.offsets[client + 1])
    rng = generator(seed, Stream.BATCHES, round=round, client=client, task=index)
    return [
        rows
        for _ in range(task.local.epochs)
        for rows in torch.from_numpy(start + rng.permutation(end - start)).split(task.local.batch_size)
    ]


class TightLoop:
    """Trains clients of one task, one after the other, on the task's own module."""

    def __init__(self, task: Task, index: int, seed: int) -> None:
        self.task, self.index, self.seed = task, index, seed
        self.flat = task.layout.bind()
        self.parameters: list[Tensor] = list(task.layout.parameters.values())
        self.buffers = list(task.layout.buffers.values())

    def update(
        self, model: Model, client: int, round: int, rule: LocalRule | None = None
    ) -> tuple[Tensor, Tensor]:
        """w_start - w_end (P) and the buffers afterwards (Q)."""
        task, local = self.task, self.task.local
        start, correction = self._views(model, client, rule)
        rate = task.learning_rate(round)
        self.flat.copy_(model.parameters)
        write_buffers(self.buffers, model.buffers)
        task.module.train()
        # Not torch.manual_seed, which takes 2 ms of looking for other devices.
        torch.default_generator.manual_seed(
            torch_seed(self.seed, Stream.MODULE, round=round, client=client, task=self.index)
        )
        velocity: list[Tensor] | None = None
        for rows in batches(task, self.index, client, round, self.seed):
            loss = task.loss(task.module(task.x[rows]), task.y[rows]).mean()
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
        return model.parameters - self.flat, read_buffers(self.buffers)

    def _views(
        self, model: Model, client: int, rule: LocalRule | None
    ) -> tuple[list[Tensor], list[Tensor] | list[None]]:
        """The start and the correction, cut like the parameters."""
        if rule is None:
            return [], []
        start = self.task.layout.views(model.parameters)
        correction = rule.correction(self.index, client)
        return start, [None] * len(start) if correction is None else self.task.layout.views(correction)


def reference_update(
    task: Task,
    index: int,
    seed: int,
    model: Model,
    client: int,
    round: int,
    rule: LocalRule | None = None,
) -> tuple[Tensor, Tensor]:
    """The same update the way a textbook writes it: a copy of the module and torch.optim.SGD."""
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
            correction = rule.correction(index, client)
            flat = rule.gradient(flat, layout.read().parameters, model.parameters, correction)
            for parameter, part in zip(parameters, layout.views(flat)):
                parameter.grad = part
        if local.clip is not None:
            torch.nn.utils.clip_grad_norm_(layout.parameters.values(), local.clip)
        optimiser.step()
    trained = layout.read()
    return model.parameters - trained.parameters, trained.buffers


def client_means(values: Tensor, offsets: np.ndarray) -> np.ndarray:
    """Mean over each client's range of one value a point (N); NaN for a client without points."""
    total = np.concatenate([[0.0], np.cumsum(values.double().numpy())])
    count = np.diff(offsets)
    return np.divide(np.diff(total[offsets]), count, out=np.full(len(count), np.nan), where=count > 0)
