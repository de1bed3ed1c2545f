"""The jobs of a round: which were drawn, which came back sound, their weights and gradient steps."""

import numpy as np

from fedmux.aggregation import Updates
from fedmux.allocation import Assignment
from fedmux.distributed.team import Team
from fedmux.fleet import TRAIN
from fedmux.fleet.journal import Journal, not_finite
from fedmux.population import Bools, Floats, Ints
from fedmux.runs.layout import ALLOCATION
from fedmux.tasks.task import Task


class Deliveries:
    def __init__(
        self, drawn: Assignment, back: Bools, returned: Assignment, tasks: int, content: str
    ) -> None:
        self.drawn = drawn
        self.content = content  # what a job delivers
        self.back = back  # J: of those drawn
        self.returned = returned  # those that come back, as the aggregator sees them
        self.weights: Floats = np.zeros(len(drawn))  # J: of the updates; 0 if not used
        self.steps: Ints = np.zeros(tasks, np.int64)  # S: gradient steps of this process's updates
        self._delivered: Ints = np.zeros(len(returned), np.int64)

    def note(self, updates: Updates) -> None:
        """Record that some have arrived."""
        self.steps[updates.task] += updates.steps.sum()
        self._delivered[updates.rows] = 1

    def close(self, weights: Floats, tasks: list[Task], team: Team, journal: Journal) -> None:
        """All sound updates have arrived; `weights` are those of the jobs that came back.

        Jobs that came back but did not arrive were rejected: only simulated ones, since a real client's
        rejected job is not `back`.
        """
        team.sum(self._delivered)
        for row in np.flatnonzero(self._delivered == 0).tolist():
            client, name = int(self.returned.client[row]), tasks[self.returned.task[row]].name
            journal.fail(not_finite(client, name, TRAIN, f"{self.content} is not finite"))
        self.weights[self.back] = weights * self._delivered
        self.back[self.back] = self._delivered > 0
        team.sum(self.steps)

    @property
    def arrived(self) -> Bools:
        """Of those that come back, the jobs whose updates are used, once all are in."""
        return self._delivered > 0

    def sound(self, tasks: int) -> Ints:
        """S: number of updates used."""
        return np.bincount(self.returned.task[self.arrived], minlength=tasks)

    def record(self, round: int) -> np.ndarray:
        """Every job drawn, for the run folder; jobs that did not return have weight 0."""
        jobs = np.zeros(len(self.drawn), ALLOCATION)
        jobs["round"], jobs["weight"] = round, self.weights
        for name in ("client", "task", "count", "probability"):
            jobs[name] = getattr(self.drawn, name)
        return jobs
