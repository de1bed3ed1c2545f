"""The runs of a comparison by name, as its folder says; it validates nothing and needs no torch."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmux.errors import FedmuxError
from fedmux.runs.layout import COMPARISON, RUNS
from fedmux.toml import read_toml

Method = str | dict[str, Any]  # a name, or a table with options and perhaps a label


@dataclass(frozen=True)
class CellName:
    """A run of a comparison."""

    method: str  # its label
    label: str  # the method and what is varied, without the seed
    seed: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return cell_name(self.label, self.seed)


def is_comparison(folder: Path) -> bool:
    return (folder / COMPARISON).exists()


def run_folder(folder: Path, name: str) -> Path:
    return folder / RUNS / name


def cells(folder: Path) -> list[CellName]:
    """All runs that a comparison is to have, in its order; FedmuxError if its plan cannot be read."""
    plan = read_toml(folder / COMPARISON)
    try:
        return list(_cells(plan["methods"], plan["vary"], plan["seeds"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise FedmuxError(f"{folder / COMPARISON}: is damaged ({type(error).__name__}: {error})") from None


def _cells(methods: list[Method], vary: list[str], seeds: list[int]) -> Iterator[CellName]:
    axes = [[f" {key}={value}" for value in values] for key, values in map(parse_axis, vary)]
    for method, point, seed in itertools.product(methods, itertools.product(*axes), seeds):
        yield CellName(label_of(method), label_of(method) + "".join(point), seed)


def cell_name(label: str, seed: int) -> str:
    """A name for files."""
    return re.sub(r"[^A-Za-z0-9._=,-]", "_", f"{label}-seed-{seed}")


def label_of(method: Method) -> str:
    return method if isinstance(method, str) else str(method.get("label", method.get("name", "?")))


def parse_axis(text: str) -> tuple[str, list[str]]:
    """`key=a,b,c`; commas inside brackets or quotes do not separate."""
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise FedmuxError(f'--vary "{text}" should be key=a,b,c, such as population.rate=0.1,0.2')
    parts = re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|[^,])+", values)
    return key.strip(), [part.strip() for part in parts]
