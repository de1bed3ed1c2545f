"""What a run works on: the population, the tasks with their data, and who is present when."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmux.data.partition import Split
from fedmux.dynamics import Presence
from fedmux.population import Bools, Ints, Population
from fedmux.randomness import Stream, generator
from fedmux.recruitment import Award
from fedmux.runs.atomic import write_atomically
from fedmux.tasks.task import Task

MOST_LABELS = 10**7  # clients x labels; larger tables are not recorded


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything that is fixed before an experiment's first round."""

    population: Population
    tasks: list[Task]
    splits: list[Split]
    presence: Presence
    award: Award | None = None

    def in_round(self, round: int) -> Population:
        """Who is present in a round; clients recruited for a fraction are, in that fraction of rounds."""
        eligible = self.population.eligible
        if not self.presence.constant:
            clients, tasks = self.presence.at(round)
            eligible = eligible & clients[:, None] & tasks
        if self.award is not None and (self.award.share % 1 > 0).any():
            rng = generator(self.presence.seed, Stream.RECRUITMENT, round=round + 1)
            eligible = eligible & (rng.random(self.award.share.shape) < self.award.share)
        if eligible is self.population.eligible:
            return self.population
        return replace(self.population, eligible=eligible)

    @property
    def constant(self) -> bool:
        """Everyone is present in every round."""
        return self.presence.constant

    def changes(self) -> dict[str, list[Any]]:
        """Who came and went before the last round queried."""
        return self.presence.changes

    def running(self, round: int) -> Bools:
        """S: the tasks in training in a round."""
        return self.presence.at(round)[1]

    def rand_index(self, groups: Ints) -> dict[str, float]:
        """How well groups of clients (-1: none) match the true clusters, for each task that has them."""
        from sklearn.metrics import adjusted_rand_score

        index = {}
        for task, part in zip(self.tasks, self.splits):
            if part.cluster is not None:
                both = (groups >= 0) & (part.cluster >= 0)
                index[task.name] = float(adjusted_rand_score(part.cluster[both], groups[both]))
        return index

    def summary(self) -> dict[str, Any]:
        """The setting's part of a run's summary."""
        if self.award is None:
            return {}
        take_up = dict(zip((task.name for task in self.tasks), self.award.take_up.tolist()))
        return {
            "recruitment": {
                "take_up": take_up,
                "paid": self.award.paid,
                "budget": self.award.budget,
                "leftover": self.award.leftover,
            }
        }

    def save(self, path: Path) -> None:
        """Write the population as arrays, with details of the data split."""
        arrays: dict[str, Any] = {
            "capacity": self.population.capacity,
            "sizes": self.population.sizes,
            "eligible": self.population.eligible,
            "overlap": np.array([part.overlap for part in self.splits]),
        }
        clusters = [part.cluster for part in self.splits]
        if any(cluster is not None for cluster in clusters):
            none = np.full(self.population.clients, -1)
            arrays["cluster"] = np.stack([none if c is None else c for c in clusters], axis=1)
        for task in self.tasks:
            if (labels := _labels(task)) is not None:
                arrays[f"labels.{task.name}"] = labels
        if self.award is not None:
            arrays["award_share"], arrays["award_payment"] = self.award.share, self.award.payment
        data = io.BytesIO()
        np.savez_compressed(data, **arrays)
        write_atomically(path, data.getvalue())


def _labels(task: Task) -> Ints | None:
    """Points of each client with each label (N x labels); None without classes, or with too many."""
    if task.y.dtype != torch.int64 or task.y.ndim != 1 or not len(task.y):
        return None
    clients, labels = len(task.sizes), int(task.y.max()) + 1
    if clients * labels > MOST_LABELS:
        return None
    owner = np.repeat(np.arange(clients), task.sizes)
    counts = np.bincount(owner * labels + task.y.cpu().numpy(), minlength=clients * labels)
    return counts.reshape(clients, labels).astype(np.int32)
