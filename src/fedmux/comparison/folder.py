"""The runs of a comparison: its folder, their order, and what they show.

Each cell is a run of its own in a process of its own, so a comparison survives anything: what is done is
skipped, what was interrupted is resumed. There is one run for each core, and fewer runs than cores share out
the rest as workers; a GPU takes several runs at once, which fill each other's gaps.

    DIR/comparison.toml            what is compared
    DIR/experiments/<cell>.toml    one experiment for each cell
    DIR/runs/<cell>/               its run folder
    DIR/results.json               the table
"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch

from fedmux.comparison.design import Cell, Design
from fedmux.distributed.devices import find_device
from fedmux.distributed.workers import cores
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.runs.atomic import write_atomically
from fedmux.runs.reading import Run

RUNS_A_GPU = 4
Elsewhere = Collection[tuple[str, int]]  # (label, seed) of cells that are not asked for, being done elsewhere


class Comparison:
    """A comparison in its folder: all its cells, and those that are to be run."""

    def __init__(self, path: Path, design: Design, asked: Sequence[Cell] | None = None) -> None:
        self.path, self.design = path, design
        self.cells = design.cells()
        self.asked = self.cells if asked is None else list(asked)
        self.references = design.references(self.cells)

    @classmethod
    def create(cls, path: Path, design: Design, but: Elsewhere = ()) -> "Comparison":
        """In a new folder, or in that of a comparison of the same experiment, which gains what is new."""
        plan, asked = path / "comparison.toml", _without(but, design)
        try:
            held = cls._held(path, design)
            comparison = cls(path, held, asked)
            for folder in ("experiments", "runs"):
                (path / folder).mkdir(parents=True, exist_ok=True)
            for cell in asked:
                write_atomically(_file(path, cell), tomli_w.dumps(cell.table).encode())
            write_atomically(plan, tomli_w.dumps(held.plan()).encode())
        except OSError as error:
            raise FedmuxError(f"{path}: cannot be written ({error.strerror})") from None
        return comparison

    @classmethod
    def look(cls, path: Path, design: Design, but: Elsewhere = ()) -> "Comparison":
        """A part of what a folder holds, or may come to hold, to look at: nothing is written."""
        cls._held(path, design)
        return cls(path, design, _without(but, design))

    @staticmethod
    def _held(path: Path, design: Design) -> Design:
        """The design with what a folder holds already; refuses what does not go together."""
        if (path / "comparison.toml").exists():
            return design.added_to(Design.read(path), str(path))
        if path.exists() and any(path.iterdir()):
            raise FedmuxError(f"{path}: the folder exists and is not empty; choose another with -o")
        return design

    @classmethod
    def open(cls, path: Path) -> "Comparison":
        """As it is there: with the cells that it was to hold, the others being done elsewhere."""
        design = Design.read(path)
        return cls(path, design, [cell for cell in design.cells() if _file(path, cell).exists()])

    def folder(self, cell: Cell) -> Path:
        return folder(self.path, cell)

    def finished(self, cell: Cell) -> bool:
        return finished(self.path, cell)

    def run(self, parallel: int, progress: Callable[[list[Cell]], None]) -> list[str]:
        """Run what is not done, `parallel` at a time (0: as the machine allows); a line for each failure."""
        waiting = [cell for cell in self.asked if not self.finished(cell)]
        parallel, options = self._share_out(parallel, len(waiting))
        working: dict[subprocess.Popen[bytes], Cell] = {}
        failures: list[str] = []
        try:
            while waiting or working:
                while waiting and len(working) < parallel:
                    cell = waiting.pop(0)
                    working[self._start(cell, next(options))] = cell
                progress(list(working.values()))
                time.sleep(0.2)
                for process in [p for p in working if p.poll() is not None]:
                    cell = working.pop(process)
                    if process.returncode:
                        reason = self._last_line(cell) or f"ended with {process.returncode}"
                        failures.append(f"{cell.name}: {reason}")
        except BaseException:
            for process in working:
                process.terminate()
            for process in working:
                process.wait()
            raise
        progress([])
        return failures

    def last_words(self, cell: Cell) -> str:
        """Why a run ended that did not finish; empty if it did, or has not begun."""
        return "" if self.finished(cell) else self._last_line(cell)

    def _last_line(self, cell: Cell) -> str:
        log = self.path / "runs" / f"{cell.name}.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1].removeprefix("fedmux: ") if lines else ""

    def divergences(self, but: Sequence[str] = ()) -> list[str]:
        """A line for each task of a finished run that was paused, but for runs of which one tells already."""
        return [
            f'{cell.name}: task "{name}" diverged in round {told["round"]}: {told["reason"]}'
            for cell in self.asked
            if self.finished(cell) and not any(line.startswith(f"{cell.name}: ") for line in but)
            for name, told in Run(self.folder(cell)).summary.get("diverged", {}).items()
        ]

    def _share_out(self, parallel: int, runs: int) -> tuple[int, Iterator[list[str]]]:
        """How many runs at a time, and options for each run as it starts."""
        execution = validated(Experiment, self.cells[0].table, self.design.source).execution
        if any(axis.startswith("execution.") for axis in self.design.vary):
            return parallel or 1, itertools.repeat([])  # what is compared decides
        if find_device(execution.device).type == "cuda":
            devices = torch.cuda.device_count() if ":" not in execution.device else 1
            each = [["--device", f"cuda:{index}"] for index in range(devices)] if devices > 1 else [[]]
            return parallel or RUNS_A_GPU * devices, itertools.cycle(each)
        if execution.workers != 1:
            workers = cores() if execution.workers == "auto" else execution.workers
            return parallel or max(1, cores() // workers), itertools.repeat([])
        parallel = parallel or max(1, min(cores(), runs))
        spare = cores() // parallel
        return parallel, itertools.repeat(["--workers", str(spare)] if spare > 1 else [])

    def _start(self, cell: Cell, options: list[str]) -> "subprocess.Popen[bytes]":
        folder = self.folder(cell)
        if (folder / "experiment.toml").exists():
            arguments = ["resume", str(folder)]
            if "--device" not in options:  # it may have begun elsewhere
                options = [*options, "--device", cell.table["execution"]["device"]]
        else:
            arguments = ["run", str(_file(self.path, cell)), "-o", str(folder)]
        with (self.path / "runs" / f"{cell.name}.log").open("wb") as log:
            command = [sys.executable, "-m", "fedmux", *arguments, *options, "--quiet"]
            # A session of its own: Ctrl-C reaches the runs once, from here, and lets their rounds finish.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def results(self) -> list[dict[str, Any]]:
        """One row for each label: accuracy over seeds, set against the baseline, and what it cost."""
        by_label: dict[str, dict[int, dict[str, Any]]] = {}
        methods: dict[str, str] = {}
        for cell in self.cells:
            runs = by_label.setdefault(cell.label, {})
            methods[cell.label] = cell.method
            if self.finished(cell):
                runs[cell.seed] = Run(self.folder(cell)).summary
        rows = []
        for label, runs in by_label.items():
            if runs:
                against = self.references[label]
                head = {"label": label, "method": methods[label], "against": against}
                rows.append({**head, **_row(runs, by_label[against])})
        write_atomically(self.path / "results.json", json.dumps(rows, indent=1).encode())
        return rows


def folder(path: Path, cell: Cell) -> Path:
    return path / "runs" / cell.name


def _file(path: Path, cell: Cell) -> Path:
    return path / "experiments" / f"{cell.name}.toml"


def finished(path: Path, cell: Cell) -> bool:
    return (folder(path, cell) / "summary.json").exists()


def _without(elsewhere: Elsewhere, design: Design) -> list[Cell]:
    return [cell for cell in design.cells() if (cell.label, cell.seed) not in elsewhere]


def _row(runs: dict[int, dict[str, Any]], reference: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Figures of the runs of one label, by seed, set against those of another."""
    accuracy = [run["accuracy"]["mean"] for run in runs.values()]
    pairs = [
        (runs[seed]["accuracy"]["mean"], reference[seed]["accuracy"]["mean"])
        for seed in runs
        if seed in reference
    ]
    ratios = [a / b for a, b in pairs if b > 0]
    difference, half_width = paired_difference([a - b for a, b in pairs])
    return {
        "baseline": runs is reference,
        "seeds": list(runs),
        "final_rounds": next(iter(runs.values()))["final_rounds"],
        "accuracy": float(np.mean(accuracy)),
        "accuracy_std": float(np.std(accuracy, ddof=1)) if len(accuracy) > 1 else None,
        "minimum": float(np.mean([run["accuracy"]["minimum"] for run in runs.values()])),
        "tasks": {
            name: float(np.mean([run["tasks"][name]["accuracy"] for run in runs.values()]))
            for name in next(iter(runs.values()))["tasks"]
        },
        "relative": float(np.mean(ratios)) if ratios else None,
        "difference": difference,
        "difference_half_width": half_width,
        **{
            key: float(np.mean([run["totals"][key] / run["rounds"] for run in runs.values()]))
            for key in ("uploads", "upload_bytes", "gradient_steps", "forward_passes")
        },
        "seconds": float(np.mean([run["seconds"] for run in runs.values()])),
        "diverged": {
            f"seed {seed}": sorted(run["diverged"]) for seed, run in runs.items() if run.get("diverged")
        },
    }


def paired_difference(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and half the width of its 95 % confidence interval (Student's t); None where there is none."""
    if not differences:
        return None, None
    mean = float(np.mean(differences))
    if len(differences) < 2:
        return mean, None
    from scipy.stats import t

    error = float(np.std(differences, ddof=1)) / np.sqrt(len(differences))
    return mean, float(t.ppf(0.975, len(differences) - 1) * error)
