"""The simulated fleet: every client's work done here, one pooled tensor a task, a client an index range."""

from collections.abc import Collection, Iterator

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation import Updates
from fedmux.allocation import Assignment
from fedmux.allocation.plan import Signal
from fedmux.errors import FedmuxError
from fedmux.flat import Model
from fedmux.fleet import Scores, Signals
from fedmux.fleet.local import TightLoop, client_means
from fedmux.importing import first_line
from fedmux.population import Bools, Floats
from fedmux.tasks.task import Task

CHUNK_BYTES = 64 * 2**20  # updates held at a time before they are handed on
BATCH = 64  # points of a forward pass; larger batches are slower on a CPU


class SimulatedFleet:
    def __init__(self, tasks: list[Task], seed: int) -> None:
        self.tasks = tasks
        self.loops = [TightLoop(task, index, seed) for index, task in enumerate(tasks)]

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, available: Bools
    ) -> Signals:
        """Losses in shared batches over all clients; norms by training every available pair."""
        steps, passes = np.zeros(len(self.tasks), np.int64), np.zeros(len(self.tasks), np.int64)
        losses = norms = None
        sizes = np.where(available, self._sizes(), 0)
        if "loss" in needs:
            losses = self._client_values(models, available, 0)
            passes += [task.local.passes(sizes[:, s]).sum() for s, task in enumerate(self.tasks)]
        if "norm" in needs:
            norms = np.full(available.shape, np.nan)
            everyone = np.nonzero(available.T)
            for task, client, update, _ in self._updates(models, everyone[1], everyone[0], round):
                norms[client, task] = float(torch.linalg.vector_norm(update))
            steps += [task.local.steps(sizes[:, s]).sum() for s, task in enumerate(self.tasks)]
        return Signals(losses, norms, steps, passes)

    def train(self, models: list[Model], assignment: Assignment, round: int) -> Iterator[Updates]:
        """Updates of the jobs, in the assignment's order, in chunks of bounded memory."""
        for task, model in enumerate(models):
            rows = np.flatnonzero(assignment.task == task)
            limit = max(1, CHUNK_BYTES // (4 * max(1, len(model.parameters))))
            for start in range(0, len(rows), limit):
                chunk = rows[start : start + limit]
                done = list(self._updates(models, assignment.client[chunk], assignment.task[chunk], round))
                yield Updates(
                    task, chunk, torch.stack([job[2] for job in done]), torch.stack([job[3] for job in done])
                )

    def evaluate(self, models: list[Model], part: str) -> Scores:
        """Accuracy and loss on a held-out part: "validation" or "test"."""
        scores = []
        for task, model in zip(self.tasks, models):
            x, y = task.validation if part == "validation" else task.test
            scores.append([values.mean().item() for values in self._forward(task, model, x, y)])
        loss, accuracy = np.array(scores).T
        return Scores(accuracy, loss)

    def client_accuracies(self, models: list[Model], available: Bools) -> Floats:
        """N x S: each global model's score on each client's own points."""
        return self._client_values(models, available, 1)

    def _client_values(self, models: list[Model], available: Bools, which: int) -> Floats:
        values = np.full(available.shape, np.nan)
        for s, (task, model) in enumerate(zip(self.tasks, models)):
            values[:, s] = client_means(self._forward(task, model, task.x, task.y)[which], task.offsets)
        return np.where(available, values, np.nan)

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
        self, models: list[Model], clients: np.ndarray, tasks: np.ndarray, round: int
    ) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        with torch.random.fork_rng(devices=[]):
            for client, task in zip(clients.tolist(), tasks.tolist()):
                name = self.tasks[task].name
                try:
                    update, buffers = self.loops[task].update(models[task], client, round)
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

    def _sizes(self) -> np.ndarray:
        return np.stack([np.diff(task.offsets) for task in self.tasks], axis=1)
