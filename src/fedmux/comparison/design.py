"""What a comparison compares: methods x seeds x varied keys of one experiment."""

import copy
import itertools
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedmux.comparison.folder import Comparison, experiment_file, name_of, references
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.experiment.overrides import put
from fedmux.runs.atomic import write_atomically
from fedmux.runs.compared import Cell, combined, label_of, parse_axis, points, read_plan
from fedmux.runs.layout import CELLS, COMPARISON, RUNS

MOST_SEEDS = 100_000
Elsewhere = Collection[tuple[str, int]]  # (label, seed) of cells not to be run here: they exist elsewhere


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
        for method in experiment.compare.methods:
            if isinstance(method, dict) and not isinstance(method.get("label", ""), str):
                raise FedmuxError(
                    f"{source}: [compare] methods: the label {method['label']} should be text, in quotes"
                )
        chosen: list[str | dict[str, Any]] = list(methods) or experiment.compare.methods
        return cls(
            table=table,
            methods=chosen or [table["method"]],
            seeds=list(seeds) or experiment.compare.seeds or [experiment.seed],
            vary=list(vary),
            baseline=baseline or (None if methods else experiment.compare.baseline),
            source=source,
        )

    @classmethod
    def read(cls, path: Path) -> "Design":
        """What the comparison in a folder compares."""
        plan = read_plan(path, also=("experiment", "source"))
        return cls(
            table=plan["experiment"],
            methods=plan["methods"],
            seeds=plan["seeds"],
            vary=plan["vary"],
            baseline=plan.get("baseline"),
            source=plan["source"],
        )

    @property
    def size(self) -> int:
        """How many runs; they are not listed for it."""
        values = math.prod(len(values) for _, values in map(parse_axis, self.vary))
        return len(self.methods) * values * len(self.seeds)

    @property
    def cells(self) -> list[Cell]:
        """Every combination."""
        return combined(self.methods, self.vary, self.seeds)

    def experiments(self) -> dict[str, dict[str, Any]]:
        """By cell name its whole experiment, validated: nothing starts before all of it makes sense."""
        found: dict[str, dict[str, Any]] = {}
        chosen = itertools.product(self.methods, points(self.vary), self.seeds)
        for cell, (method, point, seed) in zip(self.cells, chosen, strict=True):
            table = {**copy.deepcopy(self.table), "seed": seed, "method": self._method(method)}
            for key, value in point:
                put(table, f"{key}={value}")
            experiment = validated(Experiment, table, self.source)
            if cell.name in found:
                raise FedmuxError(
                    f'"{cell.name}" is compared twice; name every method, seed and value once, or give a '
                    'method a "label" of its own in [compare]'
                )
            found[cell.name] = experiment.table()
        return found

    def _method(self, method: str | dict[str, Any]) -> dict[str, Any]:
        """With its options; where it is the file's own method, the file's options apply too."""
        choice = {"name": method} if isinstance(method, str) else dict(method)
        choice.pop("label", None)
        own = self.table.get("method")
        if isinstance(own, dict) and own.get("name") == choice.get("name"):
            return {**own, **choice}
        return choice

    def varies(self, section: str) -> bool:
        """Whether a key of this section is varied."""
        return any(axis.startswith(f"{section}.") for axis in self.vary)

    def plan(self) -> dict[str, Any]:
        """What comparison.toml holds; it lists the cells for readers that validate nothing."""
        cells = [{"name": c.name, "label": c.label, "method": c.method, "seed": c.seed} for c in self.cells]
        return {
            "source": self.source,
            "methods": self.methods,
            "seeds": self.seeds,
            "vary": self.vary,
            **({"baseline": self.baseline} if self.baseline else {}),
            "experiment": self.table,
            "cells": cells,
        }

    def at(self, path: Path, but: Elsewhere = ()) -> Comparison:
        """The comparison in a folder, or as it would be there. Writes nothing."""
        whole = self._with_those_in(path)
        whole.experiments()
        return self._asked_in(whole, path, but)

    def create(self, path: Path, but: Elsewhere = ()) -> Comparison:
        """Write it to a new folder, or add what is new to a comparison of the same experiment."""
        try:
            whole = self._with_those_in(path)
            experiments = whole.experiments()  # all of it makes sense before any of it is written
            comparison = self._asked_in(whole, path, but)
            for folder in (CELLS, RUNS):
                (path / folder).mkdir(parents=True, exist_ok=True)
            for cell in comparison.asked:
                write_atomically(experiment_file(path, cell), tomli_w.dumps(experiments[cell.name]).encode())
            write_atomically(path / COMPARISON, tomli_w.dumps(whole.plan()).encode())
        except OSError as error:
            raise FedmuxError(f"{path}: cannot be written ({error.strerror})") from None
        return comparison

    def _asked_in(self, whole: "Design", path: Path, but: Elsewhere) -> Comparison:
        asked = [cell for cell in self.cells if (cell.label, cell.seed) not in but]
        return Comparison(path, name_of(self.table), whole.cells, asked, whole.baseline)

    def _with_those_in(self, path: Path) -> "Design":
        """Combined with what the folder already holds, which must be of the same experiment."""
        if (path / COMPARISON).exists():
            return self.added_to(Design.read(path), str(path))
        if path.exists() and any(path.iterdir()):
            raise FedmuxError(f"{path}: the folder exists and is not empty; choose another with -o")
        return self

    def added_to(self, other: "Design", where: str) -> "Design":
        """Both together: their methods and seeds. Experiment and varied keys must be the same.

        [execution] and [output] may differ: what is left may be trained elsewhere.
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

    def references(self) -> dict[str, str]:
        return references(self.cells, self.baseline)


def _what(table: dict[str, Any]) -> dict[str, Any]:
    """What an experiment computes; not where, what it keeps, or what is compared."""
    how = {key: value for key, value in table.get("execution", {}).items() if key == "precision"}
    return {**{k: v for k, v in table.items() if k not in ("compare", "output")}, "execution": how}


def parse_seeds(text: str) -> list[int]:
    """`3`, `0-4` or `0,2,5-7`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,19})(?:-(\d{1,19}))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise FedmuxError(f'--seeds "{text}" should be numbers or ranges, such as 0-4 or 0,2,5-7')
        more = range(int(match[1]), int(match[2] or match[1]) + 1)
        if len(seeds) + more[-1] - more[0] >= MOST_SEEDS:
            raise FedmuxError(f'--seeds "{text}": takes at most {MOST_SEEDS:,} seeds')
        seeds += more
    return seeds
