"""The simulated fleet: every client's work done here, one pooled tensor a task, a client an index range.

The work is divided over the team's processes, if there are several. On a GPU nothing waits for it inside a
round but what must be known on the host: the signals and the scores.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.plan import Signal
from fedmux.errors import FedmuxError
from fedmux.flat import Model
from fedmux.fleet import Failure, Scores, Stale
from fedmux.fleet.division import longest_first, owned, point_cost
from fedmux.fleet.engine import CPU, Engine, whole
from fedmux.fleet.local import TightLoop, Trainer
from fedmux.fleet.stacked import Graphs, Stacked
from fedmux.fleet.trial import obstacle
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream, generator
from fedmux.tasks.task import Task
from fedmux.team import ALONE, Team

KEEP_BYTES = 2**30  # updates kept from the signals for the training that follows, at most
DEVICE_KEEP = 0.4  # on a GPU instead: this part of its free memory
BATCH = 64  # points of a forward pass; larger batches are slower on a CPU
DEVICE_BATCH = 2048
TRAINED_SIGNALS = frozenset({"norm", "residual", "projection"})


class Kept(NamedTuple):
    """Updates that were computed for a signal."""

    clients: Ints
    parameters: Tensor
    buffers: Tensor


class ClientScores(NamedTuple):
    """What a forward pass over the points of some clients told, and of which weights."""

    weights: Tensor
    known: Bools  # N
    losses: Floats  # N
    scores: Floats  # N


class SimulatedFleet:
    """`sticky` keeps a client's jobs with the process that owns it; otherwise the longest jobs go first."""

    releases = None  # the record has them all
    keeps_updates = True

    def __init__(
        self,
        tasks: list[Task],
        seed: int,
        engine: Engine = CPU,
        team: Team = ALONE,
        sticky: bool = True,
    ) -> None:
        if engine.device.type == "cuda":
            torch.cuda.set_device(engine.device)  # graphs are captured on the current device
        self.tasks = [task.to(engine.device) for task in tasks]
        self.engine, self.team, self.sticky = engine, team, sticky
        self.notices: list[str] = []
        self.failures: list[Failure] = []  # simulated clients drop out without a reason
        self.seed = seed
        self.owned = owned(tasks, team.rank, team.size)
        self.graphs: Graphs = {}
        self.trainers = [self._trainer(task, index, seed) for index, task in enumerate(self.tasks)]
        self.costs = np.ones(len(tasks))
        if team.size > 1 and not sticky:
            self.costs = np.array([point_cost(task) for task in self.tasks])
            team.agree("count of operations", self.costs)
        self._kept: dict[int, list[Kept]] = {}
        self._seen: dict[int, ClientScores] = {}
        self._scored: dict[str, tuple[list[Tensor], Scores]] = {}

    def _trainer(self, task: Task, index: int, seed: int) -> Trainer:
        if self.engine.stacks:
            reason = obstacle(task, self.engine)
            if reason is None:
                return Stacked(task, index, seed, self.engine, self.notices.append, self.graphs)
            self.notices.append(f'task "{task.name}": clients train one by one, not stacked: {reason}')
        return TightLoop(task, index, seed, self.engine)

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: Stale
    ) -> Signals:
        """Losses in shared batches over all clients; norms by training every asked pair."""
        losses = self._client_values(models, asked)[0] if "loss" in needs else None
        if not TRAINED_SIGNALS & set(needs):
            return Signals(losses)
        mine = asked & self.owned
        keep = self._bytes(models, mine) <= self._room_to_keep()
        found: list[tuple[int, Ints, Tensor]] = []  # task, clients, norms and betas (2 x k)
        for s, (model, trainer) in enumerate(zip(models, self.trainers)):
            clients = np.flatnonzero(mine[:, s])
            privacy = self.tasks[s].privacy
            for places, updates, buffers in trainer.updates(model, clients, round, None):
                updates = privacy.clipped(updates) if privacy else updates
                if keep:
                    self._kept.setdefault(s, []).append(Kept(clients[places], updates, buffers))
                beta = torch.ones(len(places), device=updates.device)
                if "norm" not in needs:
                    last = stale(s, clients[places]).to(updates)
                    if "projection" in needs:
                        square = (last * last).sum(1)
                        beta = torch.where(square > 0, (updates * last).sum(1) / square.clamp(min=1e-38), 0)
                    updates = updates - beta[:, None] * last
                norms = torch.linalg.vector_norm(updates, dim=1)
                found.append((s, clients[places], torch.stack([norms, beta])))
        told = np.zeros((2, *asked.shape))
        for s, clients, values in found:  # the first of these waits for the device
            told[:, clients, s] = values.cpu().numpy()
            self._demand_finite(s, clients, np.isfinite(told[0, clients, s]), round)
        self.team.sum(told)
        norms, betas = np.where(asked, told, np.nan)
        return Signals(losses, norms, betas if "projection" in needs else None)

    def send(
        self,
        models: list[Model],
        assignment: Assignment,
        round: int,
        rule: LocalRule | None,
        enough: int | None,
    ) -> Bools:
        """Nothing is sent and all would come back; simulated dropouts and delays are the round's affair."""
        return np.ones(len(assignment), bool)

    def train(
        self, models: list[Model], assignment: Assignment, round: int, rule: LocalRule | None = None
    ) -> Iterator[Updates]:
        """Updates of this process's jobs; those just computed for a signal are not computed again."""
        kept, self._kept = ({} if rule else self._kept), {}
        mine = self._mine(assignment)
        unchecked: list[tuple[int, Ints, Tensor]] = []
        for s, (model, trainer) in enumerate(zip(models, self.trainers)):
            jobs = np.flatnonzero(mine & (assignment.task == s))
            row = np.full(len(self.tasks[s].offsets) - 1, -1)
            row[assignment.client[jobs]] = jobs
            for have in kept.pop(s, []):
                wanted = np.flatnonzero(row[have.clients] >= 0)
                if len(wanted):
                    chosen = slice(None) if len(wanted) == len(have.clients) else torch.from_numpy(wanted)
                    rows = row[have.clients[wanted]]
                    yield self._updates(
                        s, assignment, rows, have.parameters[chosen], have.buffers[chosen], round
                    )
                    row[have.clients[wanted]] = -1
            left = jobs[row[assignment.client[jobs]] >= 0]
            for places, parameters, buffers in trainer.updates(model, assignment.client[left], round, rule):
                rows = left[places]
                unchecked.append((s, assignment.client[rows], torch.isfinite(parameters.sum(1))))
                if parameters.device.type == "cpu":
                    self._check_finite(unchecked, round)
                yield self._updates(s, assignment, rows, parameters, buffers, round)
        self._check_finite(unchecked, round)  # on a GPU only now, when all is under way

    def _updates(
        self, s: int, assignment: Assignment, rows: Ints, parameters: Tensor, buffers: Tensor, round: int
    ) -> Updates:
        task = self.tasks[s]
        if task.privacy is not None:
            clients = assignment.client[rows].tolist()
            sources = [generator(self.seed, Stream.NOISE, round=round, client=i, task=s) for i in clients]
            parameters = task.privacy.sent(parameters, sources)
        return Updates(s, rows, parameters, buffers, task.local.steps(task.sizes[assignment.client[rows]]))

    def _mine(self, assignment: Assignment) -> Bools:
        if self.sticky:
            return self.owned[assignment.client, assignment.task]
        if self.team.size == 1:
            return np.ones(len(assignment), bool)
        points = np.stack([task.sizes * task.local.epochs for task in self.tasks], axis=1) * self.costs
        costs = points[assignment.client, assignment.task]
        return longest_first(costs, self.team.size) == self.team.rank

    def _check_finite(self, unchecked: list[tuple[int, Ints, Tensor]], round: int) -> None:
        while unchecked:
            s, clients, finite = unchecked.pop(0)
            self._demand_finite(s, clients, finite.cpu().numpy(), round)

    def _demand_finite(self, s: int, clients: Ints, finite: Bools, round: int) -> None:
        if not finite.all():
            raise FedmuxError(
                f'task "{self.tasks[s].name}": the update of client {clients[~finite].min()} in round '
                f"{round + 1} is not finite; lower learning_rate or set clip"
            )

    def _bytes(self, models: list[Model], pairs: Bools) -> int:
        return sum(4 * len(model.parameters) * int(n) for model, n in zip(models, pairs.sum(0)))

    def _room_to_keep(self) -> float:
        if self.engine.device.type == "cuda":
            return DEVICE_KEEP * torch.cuda.mem_get_info(self.engine.device)[0]
        return KEEP_BYTES

    def evaluate(self, models: list[Model], part: str) -> Scores:
        weights = [model.parameters for model in models]
        before = self._scored.get(part)
        if before is None or any(a is not b for a, b in zip(before[0], weights)):
            self._scored[part] = weights, self._evaluate(models, part)
        return self._scored[part][1]

    def _evaluate(self, models: list[Model], part: str) -> Scores:
        sums, points = [], []
        for task, model in zip(self.tasks, models):
            x, y = task.validation if part == "validation" else task.test
            points.append(len(x))
            mine = slice(*(len(x) * rank // self.team.size for rank in (self.team.rank, self.team.rank + 1)))
            sums.append(self._forward(task, model, x[mine], y[mine]).sum(1))
        totals = torch.stack(sums).cpu().numpy()
        self.team.sum(totals)
        loss, accuracy = totals.T / np.array(points)
        return Scores(accuracy, loss)

    def client_accuracies(self, models: list[Model], available: Bools) -> Floats:
        return self._client_values(models, available)[1]

    def _client_values(self, models: list[Model], asked: Bools) -> tuple[Floats, Floats]:
        """Mean loss and score of each asked client over its own points; N x S each.

        One pass tells both, so the scores of a round's end are the losses of the next round's beginning.
        """
        told: list[tuple[int, Ints, Tensor]] = []
        for s, (task, model) in enumerate(zip(self.tasks, models)):
            seen = self._seen.get(s)
            if seen is None or seen.weights is not model.parameters or (asked[:, s] & ~seen.known).any():
                clients = np.flatnonzero(asked[:, s] & self.owned[:, s])
                x, y, offsets = task.points_of(clients)
                told.append((s, clients, client_means(self._forward(task, model, x, y), offsets)))
        fresh = np.zeros((2, *asked.shape))
        for s, clients, means in told:  # the first of these waits for the device
            fresh[:, clients, s] = means.cpu().numpy()
        if told:
            self.team.sum(fresh)
        for s, _, _ in told:
            known = asked[:, s] & (self.tasks[s].sizes > 0)
            losses, scores = np.where(known, fresh[:, :, s], np.nan)
            self._seen[s] = ClientScores(models[s].parameters, asked[:, s].copy(), losses, scores)
        seen_by_task = [self._seen[s] for s in range(len(models))]
        losses = np.stack([seen.losses for seen in seen_by_task], axis=1)
        scores = np.stack([seen.scores for seen in seen_by_task], axis=1)
        return np.where(asked, losses, np.nan), np.where(asked, scores, np.nan)

    def _forward(self, task: Task, model: Model, x: Tensor, y: Tensor) -> Tensor:
        return forward(task, model, x, y, self.engine)


@torch.inference_mode()
def forward(task: Task, model: Model, x: Tensor, y: Tensor, engine: Engine = CPU) -> Tensor:
    """Loss and score of each point under a global model (2 x points, float64)."""
    task.layout.write(model)
    task.module.eval()
    batch = BATCH if x.device.type == "cpu" else DEVICE_BATCH
    parts = [torch.zeros(2, 0, dtype=torch.float64, device=x.device)]
    with engine.computing():
        for inputs, targets in zip(x.split(batch), y.split(batch)):
            outputs = whole(task.module(inputs))
            values = task.loss(outputs, targets), task.metric(outputs, targets)
            parts.append(torch.stack([value.double() for value in values]))
    return torch.cat(parts, dim=1)


def client_means(values: Tensor, offsets: Ints) -> Tensor:
    """Means over each client's range of values by point (... x points); 0 for a client without points."""
    ends = torch.from_numpy(offsets).to(values.device)
    total = torch.nn.functional.pad(values.double().cumsum(-1), (1, 0))
    return (total[..., ends[1:]] - total[..., ends[:-1]]) / ends.diff().clamp(min=1)
