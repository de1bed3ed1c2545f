"""Starts the runs of a comparison: how many at a time, on which device, in which order.

Each cell is a run in a process of its own, so a comparison survives anything: what is done is skipped, what
was interrupted is resumed. There is one run per core; if there are fewer runs than cores, they share the
spare cores as workers. A GPU takes several runs at once, which fill each other's gaps.
"""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import torch

from fedmux.comparison.design import Design
from fedmux.comparison.folder import Comparison, experiment_file
from fedmux.comparison.limits import fitting
from fedmux.distributed.devices import find_device
from fedmux.distributed.workers import cores
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.runs.compared import Cell
from fedmux.runs.layout import CELLS, EXPERIMENT

RUNS_A_GPU = 4
WAIT = 0.2  # seconds between two checks of the processes
Progress = Callable[[list[Cell]], None]  # called with the cells that are running


class Schedule:
    """The runs that a comparison still needs."""

    def __init__(self, comparison: Comparison) -> None:
        if not comparison.asked:
            raise FedmuxError(
                f"{comparison.path}: none of its experiments is in {CELLS}/; restore them, or compare again "
                "in another folder"
            )
        self.comparison = comparison
        self.design = Design.read(comparison.path)
        self.experiments = self.design.experiments()

    @property
    def rounds(self) -> int:
        """Of each run."""
        return int(self.experiments[self.comparison.asked[0].name]["rounds"])

    @property
    def _first(self) -> Experiment:
        return validated(Experiment, next(iter(self.experiments.values())), self.design.source)

    def run(self, parallel: int, progress: Progress) -> list[str]:
        """Run what is not done, `parallel` at a time (0: as the machine allows); a line for each failure."""
        waiting = [cell for cell in self.comparison.asked if not self.comparison.finished(cell)]
        parallel, options = self._share_out(parallel, len(waiting))
        working: dict[subprocess.Popen[bytes], Cell] = {}
        failures: list[str] = []
        try:
            while waiting or working:
                while waiting and len(working) < parallel:
                    cell = waiting.pop(0)
                    working[self._start(cell, next(options))] = cell
                progress(list(working.values()))
                time.sleep(WAIT)
                for process in [p for p in working if p.poll() is not None]:
                    cell = working.pop(process)
                    if process.returncode:
                        reason = self.comparison.last_line(cell) or f"ended with {process.returncode}"
                        failures.append(f"{cell.name}: {reason}")
        except BaseException:
            for process in working:
                process.terminate()
            for process in working:
                process.wait()
            raise
        progress([])
        return failures

    def _share_out(self, parallel: int, runs: int) -> tuple[int, Iterator[list[str]]]:
        """How many runs at a time, and options for each run as it starts."""
        if self.design.varies("execution"):
            return parallel or 1, itertools.repeat([])  # what is compared decides
        execution = self._first.execution
        if find_device(execution.device).type == "cuda":
            devices = torch.cuda.device_count() if ":" not in execution.device else 1
            each = [["--device", f"cuda:{index}"] for index in range(devices)] if devices > 1 else [[]]
            return parallel or RUNS_A_GPU * devices, itertools.cycle(each)
        if execution.workers != 1:
            workers = cores() if execution.workers == "auto" else execution.workers
            return parallel or fitting(self._first, max(1, cores() // workers)), itertools.repeat([])
        parallel = parallel or fitting(self._first, max(1, min(cores(), runs)))
        spare = cores() // parallel
        return parallel, itertools.repeat(["--workers", str(spare)] if spare > 1 else [])

    def _start(self, cell: Cell, options: list[str]) -> "subprocess.Popen[bytes]":
        folder = self.comparison.folder(cell)
        if (folder / EXPERIMENT).exists():
            arguments = ["resume", str(folder)]
            if "--device" not in options:  # it may have begun elsewhere
                options = [*options, "--device", self.experiments[cell.name]["execution"]["device"]]
        else:
            arguments = ["run", str(experiment_file(self.comparison.path, cell)), "-o", str(folder)]
        folder.parent.mkdir(exist_ok=True)
        with self.comparison.log(cell).open("wb") as log:
            command = [sys.executable, "-m", "fedmux", *arguments, *options, "--quiet"]
            # A session of its own: Ctrl-C reaches the runs once, from here, and lets their rounds finish.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
