"""The simulated fleet: every client's work done here, one pooled tensor a task, a client an index range.

The work is divided over the team's processes, if there are several. On a GPU nothing waits for it inside a
round but what must be known on the host: the signals and the scores.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation import LocalRule, Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.plan import Signal
from fedmux.distributed.memory import Release, in_parts, nothing, patiently
from fedmux.distributed.team import ALONE, Team
from fedmux.fleet import SIGNALS, TRAINED_SIGNALS, Scores, Stale
from fedmux.fleet.division import longest_first, owned, point_cost
from fedmux.fleet.engine import CPU, Engine, whole
from fedmux.fleet.journal import Journal, not_finite
from fedmux.fleet.local import TightLoop, Trainer
from fedmux.fleet.stackable import obstacle
from fedmux.fleet.stacked import Graphs, Stacked
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream, generator
from fedmux.tasks.task import Task

KEEP_BYTES = 2**30  # updates kept from the signals for the training that follows, at most
DEVICE_KEEP = 0.4  # on a GPU instead: this part of its free memory
BATCH = 64  # points of a forward pass; larger batches are slower on a CPU
DEVICE_BATCH = 2048
GLANCE = 256  # points of the validation part that tell whether a model is sane


class Kept(NamedTuple):
    """Updates that were computed for a signal."""

    clients: Ints
    parameters: Tensor
    buffers: Tensor


class Trained(NamedTuple):
    """Updates of one task that have just been made."""

    task: int
    rows: Ints  # k: of the assignment
    parameters: Tensor  # k x P
    buffers: Tensor  # k x Q


class ClientScores(NamedTuple):
    """What a forward pass over the points of some clients told, and of which weights."""

    weights: Tensor
    known: Bools  # N
    losses: Floats  # N
    scores: Floats  # N


class SimulatedFleet:
    """`sticky` keeps a client's jobs with the process that owns it; otherwise the longest jobs go first."""

    keeps_updates = True

    def __init__(
        self,
        tasks: list[Task],
        seed: int,
        engine: Engine = CPU,
        team: Team = ALONE,
        sticky: bool = True,
        journal: Journal | None = None,
    ) -> None:
        if engine.device.type == "cuda":
            patiently(partial(torch.cuda.set_device, engine.device))  # graphs are captured on the current one
        self.tasks = [patiently(partial(task.to, engine.device)) for task in tasks]
        self.engine, self.team, self.sticky = engine, team, sticky
        self.journal = journal or Journal()
        self.seed = seed
        self.owned = owned(tasks, team.rank, team.size)
        self.graphs: Graphs = {}
        self._kept: dict[int, list[Kept]] = {}
        self._scarce = False  # memory ran out since signals were last asked for: nothing is kept
        self.trainers: list[Trainer] = []
        for index, task in enumerate(self.tasks):
            self.trainers.append(self._trainer(task, index, seed))
        self.costs = np.ones(len(tasks))
        if team.size > 1 and not sticky:
            self.costs = np.array([point_cost(task) for task in self.tasks])
            team.agree("count of operations", self.costs)
        self._seen: dict[int, ClientScores] = {}
        self._scored: dict[str, tuple[list[Tensor], Scores]] = {}

    def _trainer(self, task: Task, index: int, seed: int) -> Trainer:
        if self.engine.stacks:
            reason = patiently(partial(obstacle, task, self.engine), self.release)
            if reason is None:
                notice = self.journal.notice
                return Stacked(task, index, seed, self.engine, notice, self.graphs, self.release)
            self.journal.notice(f'task "{task.name}": clients train one by one, not stacked: {reason}')
        return TightLoop(task, index, seed, self.engine)

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: Stale
    ) -> Signals:
        """Losses in shared batches over all clients; norms by training every asked pair."""
        losses = self._client_values(models, asked)[0] if "loss" in needs else None
        if not TRAINED_SIGNALS & set(needs):
            return self._sound(asked, losses)
        mine = asked & self.owned
        self._scarce = False
        keep = self._bytes(models, mine) <= self._room_to_keep()
        found: list[tuple[int, Ints, Tensor]] = []  # task, clients, norms and betas (2 x k)
        for s, (model, trainer) in enumerate(zip(models, self.trainers)):
            clients = np.flatnonzero(mine[:, s])
            privacy = self.tasks[s].privacy
            for places, updates, buffers in trainer.updates(model, clients, round, None):
                if privacy:
                    updates = patiently(partial(privacy.clipped, updates), self.release)
                if keep and not self._scarce:
                    self._kept.setdefault(s, []).append(Kept(clients[places], updates, buffers))

                def look(
                    rows: slice, s: int = s, updates: Tensor = updates, who: Ints = clients[places]
                ) -> None:
                    last = None if "norm" in needs else stale(s, who[rows]).to(updates)
                    found.append((s, who[rows], compared(updates[rows], last, "projection" in needs)))

                in_parts(len(places), look, self.release)
        told = np.zeros((2, *asked.shape))
        for s, clients, values in found:  # the first of these waits for the device
            told[:, clients, s] = values.cpu().numpy()
        self.team.sum(told)
        norms, betas = np.where(asked, told, np.nan)
        return self._sound(asked, losses, norms, betas if "projection" in needs else None)

    def _sound(
        self, asked: Bools, losses: Floats | None, norms: Floats | None = None, betas: Floats | None = None
    ) -> Signals:
        """The reports that are finite; who sends another one is silent, and a failure says why."""
        silent = np.zeros_like(asked)
        for values, what in ((losses, "loss"), (norms, "norm of the update"), (betas, "beta")):
            if values is not None:
                bad = asked & ~silent & ~np.isfinite(values)
                for client, s in np.argwhere(bad).tolist():
                    reason = f"the {what} is not finite"
                    self.journal.fail(not_finite(client, self.tasks[s].name, SIGNALS, reason))
                silent |= bad
        if not silent.any():
            return Signals(losses, norms, betas)
        heard = Signals(losses, norms, betas).where(~silent)
        return replace(heard, silent=silent)

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
        for s, rows, parameters, buffers in self._finite(self._trained(models, assignment, round, rule)):
            yield self._updates(s, assignment, rows, parameters, buffers, round)

    def _trained(
        self, models: list[Model], assignment: Assignment, round: int, rule: LocalRule | None
    ) -> Iterator[Trained]:
        kept, self._kept = ({} if rule else self._kept), {}
        mine = self._mine(assignment)
        for s, (model, trainer) in enumerate(zip(models, self.trainers)):
            jobs = np.flatnonzero(mine & (assignment.task == s))
            row = np.full(len(self.tasks[s].offsets) - 1, -1)
            row[assignment.client[jobs]] = jobs
            for have in kept.pop(s, []):
                wanted = np.flatnonzero(row[have.clients] >= 0)
                if len(wanted):
                    chosen = slice(None) if len(wanted) == len(have.clients) else torch.from_numpy(wanted)
                    yield Trained(s, row[have.clients[wanted]], have.parameters[chosen], have.buffers[chosen])
                    row[have.clients[wanted]] = -1
            left = jobs[row[assignment.client[jobs]] >= 0]
            for places, parameters, buffers in trainer.updates(model, assignment.client[left], round, rule):
                yield Trained(s, left[places], parameters, buffers)

    def _finite(self, chunks: Iterator[Trained]) -> Iterator[Trained]:
        """What is finite of each chunk. On a GPU the next one is under way while one is looked at."""
        waiting: list[tuple[Trained, Tensor, torch.cuda.Event | None]] = []
        for chunk in chunks:
            finite = torch.isfinite(chunk.parameters.sum(1))
            if chunk.buffers.shape[1]:
                finite &= torch.isfinite(chunk.buffers.sum(1)).to(finite.device)
            event = None
            if finite.device.type == "cuda":
                finite = finite.to(torch.device("cpu"), non_blocking=True)
                event = torch.cuda.Event()
                event.record()
            waiting.append((chunk, finite, event))
            del chunk
            if event is None or len(waiting) > 1:
                yield from _only_finite(*waiting.pop(0))
        while waiting:
            yield from _only_finite(*waiting.pop(0))

    def _updates(
        self, s: int, assignment: Assignment, rows: Ints, parameters: Tensor, buffers: Tensor, round: int
    ) -> Updates:
        task = self.tasks[s]
        if task.privacy is not None:
            clients, privacy = assignment.client[rows].tolist(), task.privacy

            def sent() -> Tensor:
                keys = ({"round": round, "client": client, "task": s} for client in clients)
                return privacy.sent(parameters, [generator(self.seed, Stream.NOISE, **key) for key in keys])

            parameters = patiently(sent, self.release)
        return Updates(s, rows, parameters, buffers, task.local.steps(task.sizes[assignment.client[rows]]))

    def _mine(self, assignment: Assignment) -> Bools:
        if self.sticky:
            return self.owned[assignment.client, assignment.task]
        if self.team.size == 1:
            return np.ones(len(assignment), bool)
        points = np.stack([task.sizes * task.local.epochs for task in self.tasks], axis=1) * self.costs
        costs = points[assignment.client, assignment.task]
        return longest_first(costs, self.team.size) == self.team.rank

    def _bytes(self, models: list[Model], pairs: Bools) -> int:
        return sum(4 * len(model.parameters) * int(n) for model, n in zip(models, pairs.sum(0)))

    def release(self) -> None:
        """Give back what can be had again: stacks and graphs, updates kept for the training that follows."""
        self._kept, self._scarce = {}, True
        self.graphs.clear()
        for trainer in self.trainers:
            trainer.release()

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
            x, y = task.test if part == "test" else task.validation
            x, y = (x[:GLANCE], y[:GLANCE]) if part == "glance" else (x, y)
            points.append(len(x))
            mine = slice(*(len(x) * rank // self.team.size for rank in (self.team.rank, self.team.rank + 1)))
            sums.append(self._forward(task, model, x[mine], y[mine]).sum(1))
        totals = torch.stack(sums).cpu().numpy()
        self.team.sum(totals)
        loss, accuracy = totals.T / np.array(points)
        return Scores(accuracy, loss)

    def client_scores(self, models: list[Model], available: Bools) -> Scores:
        losses, scores = self._client_values(models, available)
        known = available & np.stack([task.sizes > 0 for task in self.tasks], axis=1)
        return Scores(scores, np.where(known & ~np.isfinite(losses), np.inf, losses))

    def _client_values(self, models: list[Model], asked: Bools) -> tuple[Floats, Floats]:
        """Mean loss and score of each asked client over its own points; N x S each.

        One pass tells both, so the scores of a round's end are the losses of the next round's beginning.
        """
        told: list[tuple[int, Ints, Tensor]] = []
        fresh = [s for s, model in enumerate(models) if not self._knows(s, model, asked[:, s])]
        for s in fresh:
            clients = np.flatnonzero(asked[:, s] & self.owned[:, s])

            def look(rows: slice, s: int = s, clients: Ints = clients) -> None:
                x, y, offsets = self.tasks[s].points_of(clients[rows])
                values = self._forward(self.tasks[s], models[s], x, y)
                told.append((s, clients[rows], client_means(values, offsets)))

            in_parts(len(clients), look, self.release)
        values = np.zeros((2, *asked.shape))
        for s, clients, means in told:  # the first of these waits for the device
            values[:, clients, s] = means.cpu().numpy()
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
        """Whether the asked clients (N) have been looked at under this very model."""
        seen = self._seen.get(s)
        return seen is not None and seen.weights is model.parameters and not (asked & ~seen.known).any()

    def _forward(self, task: Task, model: Model, x: Tensor, y: Tensor) -> Tensor:
        return forward(task, model, x, y, self.engine, self.release)


def _only_finite(chunk: Trained, finite: Tensor, event: torch.cuda.Event | None) -> Iterator[Trained]:
    """The rows of a chunk whose flags (k) say so; `event`: when the flags are there."""
    if event is not None:
        event.synchronize()
    if finite.all():
        yield chunk
    elif finite.any():
        keep = torch.nonzero(finite)[:, 0]
        task, rows, parameters, buffers = chunk
        yield Trained(task, rows[keep.numpy()], parameters[keep], buffers[keep])


@torch.inference_mode()
def forward(
    task: Task, model: Model, x: Tensor, y: Tensor, engine: Engine = CPU, release: Release = nothing
) -> Tensor:
    """Loss and score of each point under a global model (2 x points, float64)."""
    task.layout.write(model)
    task.module.eval()
    batch = BATCH if x.device.type == "cpu" else DEVICE_BATCH
    parts = [torch.zeros(2, 0, dtype=torch.float64, device=x.device)]

    def look(rows: slice) -> None:
        outputs = whole(task.module(x[rows]))
        values = task.loss(outputs, y[rows]), task.metric(outputs, y[rows])
        parts.append(torch.stack([value.double() for value in values]))

    with engine.computing():
        in_parts(len(x), look, release, most=batch)
    return torch.cat(parts, dim=1)


def compared(updates: Tensor, last: Tensor | None, projects: bool) -> Tensor:
    """Norms and betas (2 x k): of the updates, or of what they are without beta times those sent last."""
    beta = torch.ones(len(updates), device=updates.device)
    if last is not None:
        if projects:
            square = (last * last).sum(1)
            beta = torch.where(square > 0, (updates * last).sum(1) / square.clamp(min=1e-38), 0)
        updates = updates - beta[:, None] * last
    return torch.stack([torch.linalg.vector_norm(updates, dim=1), beta])


def client_means(values: Tensor, offsets: Ints) -> Tensor:
    """Means over each client's range of values by point (k x points); 0 for a client without points.

    Each client's points are added up on their own: taking differences of one running sum would lose small
    losses behind a large one, and all behind one that is not finite.
    """
    sizes = torch.from_numpy(np.diff(offsets)).to(values.device)
    total = torch.segment_reduce(values.double().T.contiguous(), "sum", lengths=sizes, axis=0).T
    return total / sizes.clamp(min=1)
