"""The simulated fleet: every client's work done here, one pooled tensor a task, a client an index range."""

from collections.abc import Collection, Iterator

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.plan import Signal
from fedmux.errors import FedmuxError
from fedmux.flat import Model
from fedmux.fleet import Scores, Stale
from fedmux.fleet.local import TightLoop, client_means
from fedmux.importing import first_line
from fedmux.population import Bools, Floats, Ints
from fedmux.tasks.task import Task

CHUNK_BYTES = 64 * 2**20  # updates held at a time before they are handed on
KEEP_BYTES = 2**30  # updates kept from the signals for the training that follows, at most
BATCH = 64  # points of a forward pass; larger batches are slower on a CPU


class SimulatedFleet:
    def __init__(self, tasks: list[Task], seed: int) -> None:
        self.tasks = tasks
        self.loops = [TightLoop(task, index, seed) for index, task in enumerate(tasks)]
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # (task, client) -> update, buffers

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: Stale
    ) -> Signals:
        """Losses in shared batches over all clients; norms by training every asked pair."""
        losses = self._client_values(models, asked, 0) if "loss" in needs else None
        if not {"norm", "residual", "projection"} & set(needs):
            return Signals(losses)
        norms, betas = np.full(asked.shape, np.nan), np.full(asked.shape, np.nan)
        task, client = np.nonzero(asked.T)
        size = sum(4 * len(models[s].parameters) * int(n) for s, n in enumerate(asked.sum(0)))
        for s, i, update, buffers in self._updates(models, client, task, round, None):
            if size <= KEEP_BYTES:
                self._kept[s, i] = update, buffers
            if "norm" not in needs:
                last = stale(s, np.array([i]))[0]
                square = float(last @ last)
                beta = 1.0 if "residual" in needs else float(update @ last) / square if square > 0 else 0.0
                update, betas[i, s] = update - beta * last, beta
            norms[i, s] = float(torch.linalg.vector_norm(update))
        return Signals(losses, norms, betas if "projection" in needs else None)

    def train(
        self, models: list[Model], assignment: Assignment, round: int, rule: LocalRule | None = None
    ) -> Iterator[Updates]:
        """Updates in the assignment's order; those just computed for a signal are not computed again."""
        kept, self._kept = ({} if rule else self._kept), {}
        for s, model in enumerate(models):
            rows = np.flatnonzero(assignment.task == s)
            limit = max(1, CHUNK_BYTES // (4 * max(1, len(model.parameters))))
            for begin in range(0, len(rows), limit):
                chunk = rows[begin : begin + limit]
                clients = assignment.client[chunk]
                new = (
                    clients
                    if not kept
                    else np.array([i for i in clients.tolist() if (s, i) not in kept], int)
                )
                for _, i, *trained in self._updates(models, new, np.full(len(new), s), round, rule):
                    kept[s, i] = trained[0], trained[1]
                done = [kept.pop((s, i)) for i in clients.tolist()]
                yield Updates(
                    s,
                    chunk,
                    torch.stack([update for update, _ in done]),
                    torch.stack([buffers for _, buffers in done]),
                    self.tasks[s].local.steps(np.diff(self.tasks[s].offsets)[clients]),
                )

    def evaluate(self, models: list[Model], part: str) -> Scores:
        scores = []
        for task, model in zip(self.tasks, models):
            x, y = task.validation if part == "validation" else task.test
            scores.append([values.mean().item() for values in self._forward(task, model, x, y)])
        loss, accuracy = np.array(scores).T
        return Scores(accuracy, loss)

    def client_accuracies(self, models: list[Model], available: Bools) -> Floats:
        return self._client_values(models, available, 1)

    def _client_values(self, models: list[Model], asked: Bools, which: int) -> Floats:
        """Mean loss (0) or score (1) of each asked client over its own points; N x S."""
        values = np.full(asked.shape, np.nan)
        for s, (task, model) in enumerate(zip(self.tasks, models)):
            clients = np.flatnonzero(asked[:, s])
            x, y, offsets = task.points_of(clients)
            values[clients, s] = client_means(self._forward(task, model, x, y)[which], offsets)
        return values

    @torch.inference_mode()
    def _forward(self, task: Task, model: Model, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and score of each point under a global model."""
        task.layout.write(model)
        task.module.eval()
        losses, scores = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.float64)]
        for inputs, targets in zip(x.split(BATCH), y.split(BATCH)):
            outputs = task.module(inputs)
            losses.append(task.loss(outputs, targets).double())
            scores.append(task.metric(outputs, targets).double())
        return torch.cat(losses), torch.cat(scores)

    def _updates(
        self, models: list[Model], clients: Ints, tasks: Ints, round: int, rule: LocalRule | None
    ) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """(task, client, update, buffers) of each pair, in order."""
        with torch.random.fork_rng(devices=[]):
            for client, task in zip(clients.tolist(), tasks.tolist()):
                name = self.tasks[task].name
                try:
                    update, buffers = self.loops[task].update(models[task], client, round, rule)
                except Exception as error:  # a user's module or loss can raise anything
                    raise FedmuxError(
                        f'task "{name}": local training of client {client} failed: {first_line(error)}'
                    ) from error
                if not torch.isfinite(update.sum()):
                    raise FedmuxError(
                        f'task "{name}": the update of client {client} in round {round + 1} '
                        f"is not finite; lower learning_rate or set clip"
                    )
                yield task, client, update, buffers
