"""What a comparison compares: methods x seeds x varied keys of one experiment."""

import copy
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.experiment.overrides import put
from fedmux.toml import read_toml


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

    @classmethod
    def read(cls, path: Path) -> "Design":
        """What the comparison in a folder compares."""
        plan = read_toml(path / "comparison.toml")
        try:
            return cls(
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
