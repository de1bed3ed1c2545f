"""Which of a client's points are in which mini-batch: a function of seed, round, client and task only."""

import numpy as np
import torch
from torch import Tensor

from fedmux.population import Floats, Ints
from fedmux.randomness import Stream, generator
from fedmux.tasks.task import Task


def orders(task: Task, index: int, client: int, round: int, seed: int) -> Ints:
    """Row numbers of a client's points in the order of each epoch (epochs x n)."""
    start, end = int(task.offsets[client]), int(task.offsets[client + 1])
    rng = generator(seed, Stream.BATCHES, round=round, client=client, task=index)
    return start + np.stack([rng.permutation(end - start) for _ in range(task.local.epochs)])


def batches(task: Task, index: int, client: int, round: int, seed: int) -> list[Tensor]:
    """Row numbers of each mini-batch, epoch after epoch."""
    return [
        rows
        for epoch in torch.from_numpy(orders(task, index, client, round, seed))
        for rows in epoch.split(task.local.batch_size)
        if len(rows)
    ]


def schedule(
    task: Task, index: int, clients: Ints, width: int, round: int, seed: int
) -> tuple[Ints, Floats, Ints]:
    """For clients that train together: the rows of each step's points (K x k x width), the points' shares of
    the loss, and each client's number of steps (k)."""
    sizes = task.sizes[clients]
    passes, steps = task.local.passes(sizes), task.local.steps(sizes)
    rows = np.zeros((int(steps.max(initial=0)), len(clients), width), np.int64)
    for place, client in enumerate(clients.tolist()):
        # The last batch is padded with the client's own points, at weight 0.
        order = np.full((task.local.epochs, passes[place] * width), task.offsets[client])
        order[:, : sizes[place]] = orders(task, index, client, round, seed)
        rows[: steps[place], place] = order.reshape(-1, width)
    step = np.arange(len(rows))[:, None]  # K x 1
    points = sizes - step % np.maximum(passes, 1) * width  # K x k: left of the epoch
    points = np.where(step < steps, np.clip(points, 0, width), 0)
    inside = np.arange(width) < points[:, :, None]
    return rows, (inside / np.maximum(points, 1)[:, :, None]).astype(np.float32), steps
