"""The journal of a run with real clients: failures reach the operator at once, and
releases are on disk before they happen."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedmux.fleet.journal import Journal
from fedmux.population import Ints
from fedmux.runs.atomic import write_atomically
from fedmux.runs.reading import read_jobs, read_releases
from fedmux.runs.rounds import Failure


class FlowerJournal(Journal):
    """`releases` (N x S) counts the updates that clients were asked for, over restarts too.

    The file is never cut back: a round that is repeated releases further updates.
    """

    def __init__(
        self,
        clients: int,
        tasks: int,
        file: Path | None = None,
        failed: Callable[[Failure], None] = lambda failure: None,
    ) -> None:
        super().__init__()
        self.file, self.failed = file, failed
        self.releases = np.zeros((clients, tasks), np.int64)
        if file and file.exists():
            self.releases = read_releases(file, (clients, tasks))
        elif file:  # a run that an older version began
            jobs = read_jobs(file.parent)
            np.add.at(self.releases, (jobs["client"], jobs["task"]), 1)

    def fail(self, failure: Failure) -> None:
        super().fail(failure)
        self.failed(failure)

    def release(self, clients: Ints, tasks: Ints) -> None:
        self.releases[clients, tasks] += 1
        if self.file:
            data = io.BytesIO()
            np.save(data, self.releases)
            write_atomically(self.file, data.getvalue())
