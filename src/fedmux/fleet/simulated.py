"""The simulated fleet: does all clients' work here; a task's data is one tensor, a client an index range.

The work is divided among the team's processes, if there are several. Within a round the host waits for a GPU
only for what it needs to know: signals and scores.
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
from fedmux.distributed.memory import in_parts, patiently
from fedmux.distributed.team import ALONE, Team
from fedmux.fleet import SIGNALS, TRAINED_SIGNALS, LastSent, Scores
from fedmux.fleet.division import longest_first, owned, point_cost
from fedmux.fleet.engine import CPU, Engine
from fedmux.fleet.journal import Journal, not_finite
from fedmux.fleet.local import TightLoop, Trainer
from fedmux.fleet.scoring import Scorer
from fedmux.fleet.stackable import obstacle
from fedmux.fleet.stacked import Graphs, Stacked
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream, generator
from fedmux.tasks.task import Task

KEEP_BYTES = 2**30  # limit on the updates kept from the signals for the training that follows
DEVICE_KEEP = 0.4  # on a GPU instead: this part of its free memory


class Spare(NamedTuple):
    """Updates of one task that were computed for a signal and can be reused in training."""

    clients: Ints
    parameters: Tensor
    buffers: Tensor


class Trained(NamedTuple):
    """New updates of one task."""

    task: int
    rows: Ints  # k: indices into the assignment
    parameters: Tensor  # k x P
    buffers: Tensor  # k x Q


class SimulatedFleet:
    """`sticky` keeps a client's jobs in the process that owns it; else longest jobs are placed first."""

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
        self._spare: dict[int, list[Spare]] = {}
        self._scarce = False  # memory ran out since the last signals: keep nothing
        self.trainers: list[Trainer] = []
        for index, task in enumerate(self.tasks):
            self.trainers.append(self._trainer(task, index, seed))
        self.costs = np.ones(len(tasks))
        if team.size > 1 and not sticky:
            self.costs = np.array([point_cost(task) for task in self.tasks])
            team.agree("count of operations", self.costs)
        self.scorer = Scorer(self.tasks, self.owned, engine, team, self.release)

    def _trainer(self, task: Task, index: int, seed: int) -> Trainer:
        if self.engine.stacks:
            reason = patiently(partial(obstacle, task, self.engine), self.release)
            if reason is None:
                notice = self.journal.notice
                return Stacked(task, index, seed, self.engine, notice, self.graphs, self.release)
            self.journal.notice(f'task "{task.name}": clients train one at a time, not stacked: {reason}')
        return TightLoop(task, index, seed, self.engine)

    def signals(
        self, models: list[Model], needs: Collection[Signal], round: int, asked: Bools, stale: LastSent
    ) -> Signals:
        """Losses in shared batches over all clients; norms by training every asked pair."""
        losses = self.scorer.client_values(models, asked)[0] if "loss" in needs else None
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
                    self._spare.setdefault(s, []).append(Spare(clients[places], updates, buffers))

                def compare(
                    rows: slice, s: int = s, updates: Tensor = updates, who: Ints = clients[places]
                ) -> None:
                    last = None if "norm" in needs else stale(s, who[rows]).to(updates)
                    found.append((s, who[rows], compared(updates[rows], last, "projection" in needs)))

                in_parts(len(places), compare, self.release)
        reports = np.zeros((2, *asked.shape))
        for s, clients, values in found:  # the first of these waits for the device
            reports[:, clients, s] = values.cpu().numpy()
        self.team.sum(reports)
        norms, betas = np.where(asked, reports, np.nan)
        return self._sound(asked, losses, norms, betas if "projection" in needs else None)

    def _sound(
        self, asked: Bools, losses: Floats | None, norms: Floats | None = None, betas: Floats | None = None
    ) -> Signals:
        """The finite reports; clients with other reports count as silent, and failures record why."""
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
        telling: Bools | None = None,
    ) -> Bools:
        """Nothing to send, and all jobs come back; the round simulates dropouts and delays."""
        return np.ones(len(assignment), bool)

    def train(
        self,
        models: list[Model],
        assignment: Assignment,
        round: int,
        rule: LocalRule | None = None,
        telling: Bools | None = None,
    ) -> Iterator[Updates]:
        """Updates of this process's jobs; those just computed for a signal are reused."""
        losses, bad = (None, None) if telling is None else self._losses(models, assignment, telling)
        for s, rows, parameters, buffers in self._finite(self._trained(models, assignment, round, rule)):
            updates = self._updates(s, assignment, rows, parameters, buffers, round)
            if losses is not None and bad is not None:
                sound = np.flatnonzero(~bad[rows])
                updates = replace(updates, losses=losses[rows])
                updates = updates if len(sound) == len(rows) else updates.part(sound)
            if len(updates.rows):
                yield updates

    def _losses(self, models: list[Model], assignment: Assignment, telling: Bools) -> tuple[Floats, Bools]:
        """J: the loss each client starts from, NaN for those that do not tell; whose is not finite."""
        drawn = np.zeros_like(telling)
        drawn[assignment.client, assignment.task] = True
        found = self.scorer.client_values(models, drawn & telling)[0]
        told = telling[assignment.client, assignment.task]
        losses = np.where(told, found[assignment.client, assignment.task], np.nan)
        return losses, told & ~np.isfinite(losses)

    def _trained(
        self, models: list[Model], assignment: Assignment, round: int, rule: LocalRule | None
    ) -> Iterator[Trained]:
        spare, self._spare = ({} if rule else self._spare), {}
        mine = self._mine(assignment)
        for s, (model, trainer) in enumerate(zip(models, self.trainers)):
            jobs = np.flatnonzero(mine & (assignment.task == s))
            row = np.full(len(self.tasks[s].offsets) - 1, -1)
            row[assignment.client[jobs]] = jobs
            for have in spare.pop(s, []):
                wanted = np.flatnonzero(row[have.clients] >= 0)
                if len(wanted):
                    chosen = slice(None) if len(wanted) == len(have.clients) else torch.from_numpy(wanted)
                    yield Trained(s, row[have.clients[wanted]], have.parameters[chosen], have.buffers[chosen])
                    row[have.clients[wanted]] = -1
            left = jobs[row[assignment.client[jobs]] >= 0]
            for places, parameters, buffers in trainer.updates(model, assignment.client[left], round, rule):
                yield Trained(s, left[places], parameters, buffers)

    def _finite(self, chunks: Iterator[Trained]) -> Iterator[Trained]:
        """The finite rows of each chunk. On a GPU the next chunk runs while one is checked."""
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
        """Free what can be rebuilt: stacks, graphs, and updates kept for the training that follows."""
        self._spare, self._scarce = {}, True
        self.graphs.clear()
        for trainer in self.trainers:
            trainer.release()

    def _room_to_keep(self) -> float:
        if self.engine.device.type == "cuda":
            return DEVICE_KEEP * torch.cuda.mem_get_info(self.engine.device)[0]
        return KEEP_BYTES

    def evaluate(self, models: list[Model], part: str) -> Scores:
        return self.scorer.evaluate(models, part)

    def client_scores(self, models: list[Model], available: Bools) -> Scores:
        return self.scorer.client_scores(models, available)


def _only_finite(chunk: Trained, finite: Tensor, event: torch.cuda.Event | None) -> Iterator[Trained]:
    """The rows of a chunk whose flags (k) are true; `event`: when the flags are ready."""
    if event is not None:
        event.synchronize()
    if finite.all():
        yield chunk
    elif finite.any():
        keep = torch.nonzero(finite)[:, 0]
        task, rows, parameters, buffers = chunk
        yield Trained(task, rows[keep.numpy()], parameters[keep], buffers[keep])


def compared(updates: Tensor, last: Tensor | None, projects: bool) -> Tensor:
    """Norms and betas (2 x k) of the updates, or of the updates minus beta times the last ones."""
    beta = torch.ones(len(updates), device=updates.device)
    if last is not None:
        if projects:
            square = (last * last).sum(1)
            beta = torch.where(square > 0, (updates * last).sum(1) / square.clamp(min=1e-38), 0)
        updates = updates - beta[:, None] * last
    return torch.stack([torch.linalg.vector_norm(updates, dim=1), beta])
