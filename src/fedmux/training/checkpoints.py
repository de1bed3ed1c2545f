"""When a checkpoint is due, what it holds, and from where a run resumes."""

import time

from fedmux.distributed.team import Team
from fedmux.experiment import Output
from fedmux.fleet.journal import Journal
from fedmux.runs.writing import Checkpoint, RunFolder
from fedmux.tasks.task import Task
from fedmux.training.state import State


class Checkpoints:
    """The checkpoints of one run; only the first process of a team has a folder."""

    def __init__(self, folder: RunFolder | None, output: Output, tasks: list[Task], team: Team) -> None:
        self.folder, self.output, self.tasks, self.team = folder, output, tasks, team
        self.saved = time.monotonic()  # when the last one was written

    def open(self, journal: Journal) -> Checkpoint | None:
        """The newest sound checkpoint, in every process; truncates the logs to it. None: start afresh."""
        checkpoint, lengths, damaged = self.folder.latest() if self.folder else (None, {}, [])
        for line in damaged:
            back = f"round {checkpoint.rounds}" if checkpoint else "the start"
            journal.notice(f"{line}; going back to {back}")
        if self.folder:
            self.folder.open_logs(lengths)
        rounds = None if checkpoint is None else checkpoint.rounds
        tensors, table = self.team.share(
            {} if checkpoint is None else checkpoint.tensors,
            {"rounds": rounds, "state": {} if checkpoint is None else checkpoint.state},
        )
        return None if table["rounds"] is None else Checkpoint(table["rounds"], tensors, table["state"])

    def due(self, round: int) -> bool:
        """By rounds, or as soon as any process's clock says so."""
        if self.output.checkpoint_seconds is None:
            return round % int(self.output.checkpoint_every) == 0
        return self.team.any(time.monotonic() - self.saved >= self.output.checkpoint_seconds)

    def save(self, state: State) -> None:
        tensors = state.tensors(self.tasks)
        if self.folder:
            self.folder.save(Checkpoint(state.round, tensors, state.outside()))
        self.saved = time.monotonic()
