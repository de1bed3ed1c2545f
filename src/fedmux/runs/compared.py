"""The cells of a comparison: which run has which method and seed. Reading them validates no experiment."""

import itertools
import re
from collections.abc import Callable, Sequence
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
    return method if isinstance(method, str) else str(method.get("label", method.get("name", "?")))


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
    """All runs of the comparison in a folder."""
    return cells_of(read_plan(folder))


def cells_of(plan: dict[str, Any]) -> list[Cell]:
    return combined(plan["methods"], plan["vary"], plan["seeds"])


def read_plan(folder: Path, also: Sequence[str] = ()) -> dict[str, Any]:
    """What comparison.toml says; it has the keys in `also` too, and no value of a wrong type."""
    plan = read_toml(folder / COMPARISON)
    for key in ("methods", "vary", "seeds", *also):
        if key not in plan:
            raise _damaged(folder, f'it lacks "{key}"')
    for key, (is_right, right) in PARTS.items():
        if key in plan and not is_right(plan[key]):
            raise _damaged(folder, f'"{key}" should be {right}')
    plan["methods"] = [_with_text(method) for method in plan["methods"]]
    try:
        expected = cells_of(plan)
    except FedmuxError as error:
        raise _damaged(folder, str(error)) from None
    listed = [Cell(cell["method"], cell["label"], cell["seed"]) for cell in plan.get("cells", [])]
    if listed and listed != expected:  # older versions list none
        raise _damaged(folder, '"cells" should be the combinations of "methods", "vary" and "seeds"')
    names = dict.fromkeys(name for cell in expected for name in (cell.method, cell.label))
    if plan.get("baseline", expected[0].method) not in names:
        raise _damaged(folder, f'"baseline" should be one of {", ".join(names)}')
    return plan


def _damaged(folder: Path, what: str) -> FedmuxError:
    return FedmuxError(
        f"{folder}: its {COMPARISON} is damaged, {what}; restore it, or compare again in another folder"
    )


def _with_text(method: str | dict[str, Any]) -> str | dict[str, Any]:
    """Older versions took a number as a label."""
    return {**method, "label": label_of(method)} if "label" in method and isinstance(method, dict) else method


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_seed(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_method(value: Any) -> bool:
    if isinstance(value, dict):
        return _is_text(value.get("name")) and not isinstance(value.get("label"), list | dict)
    return _is_text(value)


def _is_cell(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return _is_text(value.get("method")) and _is_text(value.get("label")) and _is_seed(value.get("seed"))


def _list_of(each: Callable[[Any], bool], least: int = 1) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) >= least and all(map(each, value))


PARTS: dict[str, tuple[Callable[[Any], bool], str]] = {  # of comparison.toml: a test, and what is right
    "source": (_is_text, "text"),
    "methods": (_list_of(_is_method), "a list of at least one method, each a name or a table with a name"),
    "seeds": (_list_of(_is_seed), "a list of at least one whole number"),
    "vary": (_list_of(_is_text, least=0), 'a list such as ["population.rate=0.1,0.2"]'),
    "baseline": (_is_text, "the name of a method"),
    "experiment": (lambda value: isinstance(value, dict), "a table"),
    "cells": (_list_of(_is_cell), "a list of at least one table, each with a method, a label and a seed"),
}
