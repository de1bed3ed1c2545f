"""Notes what each update shows while it arrives, for the allocator to learn from after the round."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation import Updates
from fedmux.allocation import Assignment, Signals
from fedmux.allocation.lessons import Lesson, Lessons
from fedmux.distributed.memory import Release, in_parts
from fedmux.distributed.team import Team
from fedmux.fleet import LastSent
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints


class Learning:
    def __init__(
        self,
        wanted: frozenset[Lesson],
        returned: Assignment,
        stale: LastSent,
        release: Release,
    ) -> None:
        """`stale` looks up what is kept of clients."""
        self.wanted, self.jobs, self.stale, self.release = wanted, returned, stale, release
        self.losses = np.zeros(len(returned))
        self._seen: list[tuple[Ints, Tensor]] = []  # rows; norm of G, cosine, norm of h (3 x k)
        self._mine: dict[int, list[Ints]] = {}  # by task: rows that arrived in this process

    def note(self, updates: Updates) -> None:
        """Before the aggregator takes them: then it still has what was kept until now."""
        if updates.losses is not None:
            self.losses[updates.rows] = updates.losses
        if {"norm", "memory"} & self.wanted:
            self._mine.setdefault(updates.task, []).append(updates.rows)
            in_parts(len(updates.rows), lambda rows: self._compare(updates.part(rows)), self.release)

    def _compare(self, updates: Updates) -> None:
        new = updates.parameters
        norms = torch.linalg.vector_norm(new, dim=1)
        cosines = lengths = torch.zeros_like(norms)
        if "memory" in self.wanted:
            old = self._kept(updates.task, updates.rows).to(new)
            lengths = torch.linalg.vector_norm(old, dim=1)
            product = norms * lengths
            cosines = torch.where(product > 0, (new * old).sum(1) / product.clamp(min=1e-38), 0)
        self._seen.append((updates.rows, torch.stack([norms, cosines, lengths])))

    def _kept(self, task: int, rows: Ints) -> Tensor:
        return self.stale(task, self.jobs.client[rows])

    def lessons(self, arrived: Bools, before: Sequence[Model], after: Sequence[Model], team: Team) -> Lessons:
        """When the round is aggregated; `arrived`: the jobs (J) whose updates were used."""
        seen = np.zeros((5, len(self.jobs)))  # the three of `_seen`, norm of what is kept now, loss
        for rows, values in self._seen:
            seen[:3, rows] = values.cpu().numpy()
        if "memory" in self.wanted:
            for task, parts in self._mine.items():
                rows = np.concatenate(parts)
                in_parts(len(rows), partial(self._measure, task, rows, seen[3]), self.release)
        seen[4] = self.losses
        team.sum(seen)
        norms, cosines, lengths, kept, losses = (values[arrived] for values in seen)
        memory = "memory" in self.wanted
        return Lessons(
            self.jobs.client[arrived],
            self.jobs.task[arrived],
            losses if "loss" in self.wanted else None,
            norms if {"norm", "memory"} & self.wanted else None,
            cosines if memory else None,
            lengths if memory else None,
            kept if memory else None,
            distances(before, after) if "step" in self.wanted else None,
        )

    def _measure(self, task: int, rows: Ints, found: Floats, part: slice) -> None:
        found[rows[part]] = torch.linalg.vector_norm(self._kept(task, rows[part]), dim=1).cpu().numpy()


def with_reports(updates: Updates, jobs: Assignment, signals: Signals) -> Updates:
    """With the losses also of clients that had reported theirs before the draw, if losses are wanted."""
    if updates.losses is None or signals.losses is None:
        return updates
    reported = signals.losses[jobs.client[updates.rows], updates.task]
    return replace(updates, losses=np.where(np.isnan(updates.losses), reported, updates.losses))


def distances(before: Sequence[Model], after: Sequence[Model]) -> Floats:
    """S: between two versions of each model."""
    moved = [torch.linalg.vector_norm(a.parameters - b.parameters) for a, b in zip(before, after)]
    return np.array([float(distance) for distance in moved])
