"""The cells of a comparison: which run has which method and seed. Reading them validates no experiment."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmux.errors import FedmuxError
from fedmux.runs.layout import COMPARISON, RUNS
from fedmux.toml import read_toml


@dataclass(frozen=True)
class Cell:
    """One run of a comparison."""

    method: str  # its label
    label: str  # the method and what is varied, without the seed
    seed: int

    @property
    def name(self) -> str:
        return cell_name(self.label, self.seed)


def is_comparison(folder: Path) -> bool:
    return (folder / COMPARISON).exists()


def run_folder(folder: Path, name: str) -> Path:
    return folder / RUNS / name


def cell_name(label: str, seed: int) -> str:
    """Names the run folder."""
    return re.sub(r"[^A-Za-z0-9._=,-]", "_", f"{label}-seed-{seed}")


def label_of(method: str | dict[str, Any]) -> str:
    return method if isinstance(method, str) else method.get("label", method.get("name", "?"))


def parse_axis(text: str) -> tuple[str, list[str]]:
    """`key=a,b,c`; commas inside brackets or quotes do not separate."""
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise FedmuxError(f'--vary "{text}" should be key=a,b,c, such as population.rate=0.1,0.2')
    parts = re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|[^,])+", values)
    if ",".join(parts) != values or not all(part.strip() for part in parts):
        raise FedmuxError(f'--vary "{text}": a value is missing; write key=a,b,c')
    return key.strip(), [part.strip() for part in parts]


def points(vary: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Every combination of the varied keys' values, as (key, value) pairs."""
    axes = [[(key, value) for value in values] for key, values in map(parse_axis, vary)]
    return [list(point) for point in itertools.product(*axes)]


def combined(
    methods: Sequence[str | dict[str, Any]], vary: Sequence[str], seeds: Sequence[int]
) -> list[Cell]:
    """Every combination of methods, varied values and seeds, in the order of a comparison's table."""
    return [
        Cell(label_of(method), label_of(method) + "".join(f" {key}={value}" for key, value in point), seed)
        for method, point, seed in itertools.product(methods, points(vary), seeds)
    ]


def cells(folder: Path) -> list[Cell]:
    """As comparison.toml lists them; those of an older version follow from its methods, keys and seeds."""
    return cells_of(read_toml(folder / COMPARISON), folder)


def cells_of(plan: dict[str, Any], folder: Path) -> list[Cell]:
    """From the contents of a comparison.toml."""
    try:
        if "cells" in plan:
            return [Cell(cell["method"], cell["label"], cell["seed"]) for cell in plan["cells"]]
        return combined(plan["methods"], plan["vary"], plan["seeds"])
    except (LookupError, TypeError, AttributeError) as error:
        raise damaged(folder, error) from None


def damaged(folder: Path, error: Exception) -> FedmuxError:
    what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return FedmuxError(f"{folder}: its {COMPARISON} is damaged, {what}; choose another folder with -o")
