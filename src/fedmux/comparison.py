"""Methods x seeds x varied keys from one experiment: the runs, their order, and what they show.

Each cell is a run of its own in a process of its own, so a comparison survives anything: what is done is
skipped, what was interrupted is resumed. There is one run for each core, and fewer runs than cores share out
the rest as workers; a GPU takes several runs at once, which fill each other's gaps.

    DIR/comparison.toml            what is compared
    DIR/experiments/<cell>.toml    one experiment for each cell
    DIR/runs/<cell>/               its run folder, without checkpoints once it is finished
    DIR/results.json               the table
"""

import copy
import itertools
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch

from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.fleet.engine import find_device
from fedmux.problems import put, read_toml, validated
from fedmux.record import Run, write_atomically
from fedmux.workers import cores

RUNS_A_GPU = 4


@dataclass(frozen=True)
class Cell:
    method: str  # its label
    label: str  # the method and what is varied, without the seed
    seed: int
    table: dict[str, Any]  # the experiment

    @property
    def name(self) -> str:
        return re.sub(r"[^A-Za-z0-9._=,-]", "_", f"{self.label}-seed-{self.seed}")


@dataclass(frozen=True)
class Design:
    """What is compared with what."""

    table: dict[str, Any]  # the experiment file's own table
    methods: list[str | dict[str, Any]]
    seeds: list[int]
    vary: list[str]  # key=a,b,c
    baseline: str | None
    source: str  # names the file in messages

    @classmethod
    def make(
        cls,
        table: dict[str, Any],
        source: str,
        *,
        methods: Sequence[str] = (),
        seeds: Sequence[int] = (),
        vary: Sequence[str] = (),
        baseline: str | None = None,
    ) -> "Design":
        """What the arguments leave open comes from the file's [compare] table, then from the experiment."""
        experiment = validated(Experiment, table, source)
        chosen: list[str | dict[str, Any]] = list(methods) or experiment.compare.methods
        return cls(
            table=table,
            methods=chosen or [table["method"]],
            seeds=list(seeds) or experiment.compare.seeds or [experiment.seed],
            vary=list(vary),
            baseline=baseline or (None if methods else experiment.compare.baseline),
            source=source,
        )

    def cells(self) -> list[Cell]:
        """Every combination, validated: nothing starts before all of it makes sense."""
        axes = [[(key, value) for value in values] for key, values in map(parse_axis, self.vary)]
        cells = []
        for method, point, seed in itertools.product(self.methods, itertools.product(*axes), self.seeds):
            table = {**copy.deepcopy(self.table), "seed": seed}
            choice = {"name": method} if isinstance(method, str) else dict(method)
            label = name = choice.pop("label", choice.get("name", "?"))
            own = self.table.get("method")
            if isinstance(own, dict) and own.get("name") == choice.get("name"):
                choice = {**own, **choice}  # the file's own options hold for its own method
            table["method"] = choice
            for key, value in point:
                put(table, f"{key}={value}")
                label += f" {key}={value}"
            experiment = validated(Experiment, table, self.source)
            cells.append(Cell(name, label, seed, experiment.table()))
        names = [cell.name for cell in cells]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise FedmuxError(
                f'"{twice}" is compared twice; name every method, seed and value once, or give a method a '
                '"label" of its own in [compare]'
            )
        return cells

    def plan(self) -> dict[str, Any]:
        """As a comparison's folder keeps it."""
        return {
            "source": self.source,
            "methods": self.methods,
            "seeds": self.seeds,
            "vary": self.vary,
            **({"baseline": self.baseline} if self.baseline else {}),
            "experiment": self.table,
        }

    def added_to(self, other: "Design", where: str) -> "Design":
        """Both together: their methods and seeds. Experiment and varied keys must be the same.

        Not so where it is computed and what is kept: what is left may be trained elsewhere.
        """
        methods = {label_of(method): method for method in other.methods}
        added = {label_of(method): method for method in self.methods}
        same = all(methods.get(label, method) == method for label, method in added.items())
        if not same or _what(self.table) != _what(other.table) or self.vary != other.vary:
            raise FedmuxError(
                f"{where}: holds another comparison, with other settings; choose another folder with -o"
            )
        return replace(
            self,
            methods=list({**methods, **added}.values()),
            seeds=sorted({*other.seeds, *self.seeds}),
            baseline=other.baseline or self.baseline,
        )

    def references(self, cells: Sequence[Cell]) -> dict[str, str]:
        """Of each label, the one that it is set against: the baseline's where all else is equal."""
        labels = list(dict.fromkeys(cell.label for cell in cells))
        methods = list(dict.fromkeys(cell.method for cell in cells))
        baseline = self.baseline or ("full" if "full" in methods else methods[0])
        if baseline not in (*labels, *methods):
            raise FedmuxError(f'baseline "{baseline}" is not compared; choose one of {", ".join(methods)}')
        if baseline not in labels and len(methods) == 1:
            baseline = labels[0]
        if baseline in labels:
            return dict.fromkeys(labels, baseline)
        return {cell.label: baseline + cell.label.removeprefix(cell.method) for cell in cells}


def _what(table: dict[str, Any]) -> dict[str, Any]:
    """What an experiment computes; not where it does, what it keeps, and what is compared."""
    how = {key: value for key, value in table.get("execution", {}).items() if key == "precision"}
    return {**{k: v for k, v in table.items() if k not in ("compare", "output")}, "execution": how}


def label_of(method: str | dict[str, Any]) -> str:
    return method if isinstance(method, str) else method.get("label", method.get("name", "?"))


def parse_axis(text: str) -> tuple[str, list[str]]:
    """`key=a,b,c`; commas inside brackets or quotes do not separate."""
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise FedmuxError(f'--vary "{text}" should be key=a,b,c, such as population.rate=0.1,0.2')
    parts = re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|[^,])+", values)
    return key.strip(), [part.strip() for part in parts]


def parse_seeds(text: str) -> list[int]:
    """`3`, `0-4` or `0,2,5-7`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise FedmuxError(f'--seeds "{text}" should be numbers or ranges, such as 0-4 or 0,2,5-7')
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return seeds


class Comparison:
    """A comparison in its folder: all its cells, and those that are to be run."""

    def __init__(self, path: Path, design: Design, asked: Sequence[Cell] | None = None) -> None:
        self.path, self.design = path, design
        self.cells = design.cells()
        self.asked = self.cells if asked is None else list(asked)
        self.references = design.references(self.cells)

    @classmethod
    def create(cls, path: Path, design: Design) -> "Comparison":
        """In a new folder, or in that of a comparison of the same experiment, which gains what is new."""
        plan, asked = path / "comparison.toml", design.cells()
        try:
            held = cls._held(path, design)
            comparison = cls(path, held, asked)
            for folder in ("experiments", "runs"):
                (path / folder).mkdir(parents=True, exist_ok=True)
            for cell in asked:
                write_atomically(
                    path / "experiments" / f"{cell.name}.toml", tomli_w.dumps(cell.table).encode()
                )
            write_atomically(plan, tomli_w.dumps(held.plan()).encode())
        except OSError as error:
            raise FedmuxError(f"{path}: cannot be written ({error.strerror})") from None
        return comparison

    @classmethod
    def look(cls, path: Path, design: Design) -> "Comparison":
        """A part of what a folder holds, or may come to hold, to look at: nothing is written."""
        cls._held(path, design)
        return cls(path, design)

    @staticmethod
    def _held(path: Path, design: Design) -> Design:
        """The design with what a folder holds already; refuses what does not go together."""
        if (path / "comparison.toml").exists():
            return design.added_to(_read(path), str(path))
        if path.exists() and any(path.iterdir()):
            raise FedmuxError(f"{path}: the folder exists and is not empty; choose another with -o")
        return design

    @classmethod
    def open(cls, path: Path) -> "Comparison":
        return cls(path, _read(path))

    def folder(self, cell: Cell) -> Path:
        return self.path / "runs" / cell.name

    def finished(self, cell: Cell) -> bool:
        return (self.folder(cell) / "summary.json").exists()

    def run(self, parallel: int, progress: Callable[[list[Cell]], None]) -> list[str]:
        """Run what is not done, `parallel` at a time (0: as the machine allows); a line for each failure."""
        waiting = [cell for cell in self.asked if not self._tidied(cell)]
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
                    self._tidied(cell)
                    if process.returncode:
                        log = (self.path / "runs" / f"{cell.name}.log").read_text().strip().splitlines()
                        reason = log[-1] if log else f"ended with {process.returncode}"
                        failures.append(f"{cell.name}: {reason.removeprefix('fedmux: ')}")
        except BaseException:
            for process in working:
                process.terminate()
            for process in working:
                process.wait()
            raise
        progress([])
        return failures

    def _tidied(self, cell: Cell) -> bool:
        """Whether it is finished; then without checkpoints, which may take gigabytes."""
        if self.finished(cell):
            shutil.rmtree(self.folder(cell) / "checkpoints", ignore_errors=True)
        return self.finished(cell)

    def _share_out(self, parallel: int, runs: int) -> tuple[int, Iterator[list[str]]]:
        """How many runs at a time, and options for each run as it starts."""
        execution = validated(Experiment, self.asked[0].table, self.design.source).execution
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
            arguments = ["run", str(self.path / "experiments" / f"{cell.name}.toml"), "-o", str(folder)]
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


def _read(path: Path) -> Design:
    """What the comparison in a folder compares."""
    plan = read_toml(path / "comparison.toml")
    try:
        return Design(
            table=plan["experiment"],
            methods=plan["methods"],
            seeds=plan["seeds"],
            vary=plan["vary"],
            baseline=plan.get("baseline"),
            source=plan["source"],
        )
    except KeyError as error:
        raise FedmuxError(
            f"{path}: its comparison.toml is damaged, it lacks {error}; choose another folder with -o"
        ) from None


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
