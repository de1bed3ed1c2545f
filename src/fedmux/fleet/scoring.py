"""Scores models: forward passes over held-out points, and over each client's own.

One pass gives both losses and scores, so scoring at the end of a round gives the next round's losses.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedmux.distributed.memory import Release, in_parts, nothing
from fedmux.distributed.team import ALONE, Team
from fedmux.fleet import Scores
from fedmux.fleet.engine import CPU, Engine, whole
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints
from fedmux.tasks.metrics import Metric
from fedmux.tasks.task import Task

BATCH = 64  # points of a forward pass; larger batches are slower on a CPU
DEVICE_BATCH = 2048
GLANCE = 256  # points of the validation part for a quick sanity check of a model


class ClientScores(NamedTuple):
    """Results of a forward pass over the points of some clients, and its weights."""

    weights: Tensor
    known: Bools  # N
    losses: Floats  # N
    scores: Floats  # N


class Scorer:
    """Scores the models of some tasks; with several processes each handles its part of the points."""

    def __init__(
        self,
        tasks: list[Task],
        owned: Bools,  # N x S: clients whose points are this process's part
        engine: Engine = CPU,
        team: Team = ALONE,
        release: Release = nothing,
    ) -> None:
        self.tasks, self.owned, self.engine, self.team, self.release = tasks, owned, engine, team, release
        self._seen: dict[int, ClientScores] = {}
        self._scored: dict[str, tuple[list[Tensor], Scores]] = {}

    def evaluate(self, models: list[Model], part: str) -> Scores:
        weights = [model.parameters for model in models]
        before = self._scored.get(part)
        if before is None or any(a is not b for a, b in zip(before[0], weights)):
            self._scored[part] = weights, self._evaluate(models, part)
        return self._scored[part][1]

    def _evaluate(self, models: list[Model], part: str) -> Scores:
        sums, points = [], []
        for task, model in zip(self.tasks, models):
            x, y = task.test if part == "test" else task.validation
            x, y = (x[:GLANCE], y[:GLANCE]) if part == "glance" else (x, y)
            points.append(len(x))
            sums.append(self._sums(task, model, x, y))
        totals = torch.stack(sums).cpu().numpy()
        self.team.sum(totals)
        loss, means = totals.T / np.array(points)
        return Scores(np.array([task.metric.finish(m) for task, m in zip(self.tasks, means)]), loss)

    def _sums(self, task: Task, model: Model, x: Tensor, y: Tensor) -> Tensor:
        """Of losses and values over this process's part of the points."""
        rank, size = self.team.rank, self.team.size
        if task.metric.whole is None:
            mine = slice(len(x) * rank // size, len(x) * (rank + 1) // size)
            return self._forward(task, model, x[mine], y[mine]).sum(1)
        if rank:  # such a score cannot be divided: the first process has all points
            return torch.zeros(2, dtype=torch.float64, device=x.device)
        values = self._forward(task, model, x, y)
        score = task.metric.whole(values[1:].cpu().numpy())
        return torch.stack([values[0].sum(), torch.full_like(values[0, 0], score * len(x))])

    def client_scores(self, models: list[Model], available: Bools) -> Scores:
        losses, scores = self.client_values(models, available)
        known = available & np.stack([task.sizes > 0 for task in self.tasks], axis=1)
        return Scores(scores, np.where(known & ~np.isfinite(losses), np.inf, losses))

    def client_values(self, models: list[Model], asked: Bools) -> tuple[Floats, Floats]:
        """Mean loss and score of each asked client over its own points; N x S each.

        Clients already scored with these weights are not scored again.
        """
        found: list[tuple[int, Ints, Tensor]] = []
        fresh = [s for s, model in enumerate(models) if not self._knows(s, model, asked[:, s])]
        for s in fresh:
            clients = np.flatnonzero(asked[:, s] & self.owned[:, s])

            def score(rows: slice, s: int = s, clients: Ints = clients) -> None:
                x, y, offsets = self.tasks[s].points_of(clients[rows])
                values = self._forward(self.tasks[s], models[s], x, y)
                found.append((s, clients[rows], by_client(self.tasks[s].metric, values, offsets)))

            in_parts(len(clients), score, self.release)
        values = np.zeros((2, *asked.shape))
        for s, clients, means in found:  # the first of these waits for the device
            losses, scores = means.cpu().numpy()
            values[:, clients, s] = losses, self.tasks[s].metric.finish(scores)
        if fresh:
            self.team.sum(values)
        for s in fresh:
            known = asked[:, s] & (self.tasks[s].sizes > 0)
            losses, scores = np.where(known, values[:, :, s], np.nan)
            self._seen[s] = ClientScores(models[s].parameters, asked[:, s].copy(), losses, scores)
        seen_by_task = [self._seen[s] for s in range(len(models))]
        losses = np.stack([seen.losses for seen in seen_by_task], axis=1)
        scores = np.stack([seen.scores for seen in seen_by_task], axis=1)
        return np.where(asked, losses, np.nan), np.where(asked, scores, np.nan)

    def _knows(self, s: int, model: Model, asked: Bools) -> bool:
        """Whether the asked clients (N) have already been scored with this very model."""
        seen = self._seen.get(s)
        return seen is not None and seen.weights is model.parameters and not (asked & ~seen.known).any()

    def _forward(self, task: Task, model: Model, x: Tensor, y: Tensor) -> Tensor:
        return forward(task, model, x, y, self.engine, self.release)


@torch.inference_mode()
def forward(
    task: Task, model: Model, x: Tensor, y: Tensor, engine: Engine = CPU, release: Release = nothing
) -> Tensor:
    """Loss and the metric's values of each point under a global model (1 + k x points, float64)."""
    task.layout.write(model)
    task.module.eval()
    batch = BATCH if x.device.type == "cpu" else DEVICE_BATCH
    parts: list[Tensor] = []

    def score(rows: slice) -> None:
        outputs = whole(task.module(x[rows]))
        losses, values = task.loss(outputs, y[rows]), task.metric(outputs, y[rows])
        parts.append(torch.cat([losses[None].double(), values.double()]))

    with engine.computing():
        in_parts(len(x), score, release, most=batch)
    return torch.cat(parts, dim=1) if parts else torch.zeros(2, 0, dtype=torch.float64, device=x.device)


def by_client(metric: Metric, values: Tensor, offsets: Ints) -> Tensor:
    """Of each client's range of points: the mean loss, and the mean that the metric's score is made of."""
    if metric.whole is None:
        return client_means(values, offsets)
    scores = torch.from_numpy(metric.of_ranges(values[1:].cpu().numpy(), offsets))
    return torch.cat([client_means(values[:1], offsets), scores[None].to(values)])


def client_means(values: Tensor, offsets: Ints) -> Tensor:
    """Means over each client's range of per-point values (k x points); 0 for a client without points.

    Each client's points are summed separately: differences of one running sum would lose small losses after
    a large one, and all losses after one that is not finite.
    """
    sizes = torch.from_numpy(np.diff(offsets)).to(values.device)
    total = torch.segment_reduce(values.double().T.contiguous(), "sum", lengths=sizes, axis=0).T
    return total / sizes.clamp(min=1)
