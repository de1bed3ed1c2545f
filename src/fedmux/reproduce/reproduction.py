"""A preset at work: its comparisons in their folders, then tables, pictures and files.

    ROOT/<preset>/comparison.toml, runs/     the runs; with variants in ROOT/<preset>/<variant>/
    ROOT/<preset>/summary.json               every final accuracy, the table, the claims, where it was made
    ROOT/<preset>/curves.csv.gz              each task over the rounds, for all runs
    ROOT/<preset>/table.md, *.png            what a page shows; report.html has every chart

`--quick` has folders of its own, `ROOT/<preset>-quick`. A preset that is drawn from another's runs finds them
in that one's folder.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmux.comparison import Comparison
from fedmux.design import Design, label_of
from fedmux.errors import FedmuxError
from fedmux.problems import put
from fedmux.reproduce.outcome import Outcome, Part, outcome
from fedmux.reproduce.preset import Preset, Variant
from fedmux.reproduce.quick import missing, smaller


@dataclass(frozen=True)
class Choice:
    """What the user wants of a preset."""

    seeds: int | None = None  # how many; none: the preset's, or one of a quick one
    quick: bool = False
    methods: Sequence[str] = ()  # labels; none: all
    overrides: Sequence[str] = ()  # key=value
    device: str | None = None


@dataclass(frozen=True)
class Reproduction:
    preset: Preset
    folder: Path
    parts: list[Part]
    changes: list[str]  # what is smaller than in the paper
    overrides: list[str]  # what the user changed

    @classmethod
    def prepare(cls, preset: Preset, root: Path, choice: Choice, train: bool = True) -> "Reproduction":
        """Validate everything and write the plans; FedmuxError says what is missing before work starts.

        Without `train` only what is there is looked at, and nothing is written.
        """
        planned, changes = designs(preset, choice)
        absent = sorted({name for _, design in planned for name in missing(design.table)})
        if train and absent:
            getting = "; ".join(f"fedmux data get {name}" for name in absent)
            raise FedmuxError(f"{preset.name}: data is not on this machine; {getting}; or try --quick")
        suffix = "-quick" if choice.quick else ""
        runs = root / (preset.source.name + suffix)
        if not train and not runs.exists():
            raise FedmuxError(f"{runs}: there is nothing yet; without --show it is trained")
        places = [
            (variant.name if variant else None, runs / _folder(variant), design)
            for variant, design in planned
        ]
        parts = [Part(name, Comparison.look(place, design), design) for name, place, design in places]
        if train:  # only now, when all of it can be
            parts = [Part(name, Comparison.create(place, design), design) for name, place, design in places]
        return cls(preset, root / (preset.name + suffix), parts, changes, list(choice.overrides))

    def outcome(self) -> Outcome:
        return outcome(self.preset, self.parts)


def _folder(variant: Variant | None) -> str:
    return variant.name.replace(" ", "-") if variant else ""


def designs(preset: Preset, choice: Choice) -> tuple[list[tuple[Variant | None, Design]], list[str]]:
    """What is compared, for each variant; and what is smaller than in the paper."""
    for override in choice.overrides:
        _check(override, preset)
    table, changes = smaller(preset.table()) if choice.quick else (preset.table(), [])
    seeds = list(range(choice.seeds or (1 if choice.quick else preset.seeds)))
    device = [f"execution.device={choice.device}"] if choice.device else []
    variants: list[Variant | None] = [*preset.source.variants] or [None]
    planned = []
    for variant in variants:
        varied = _varied(table, variant, [*choice.overrides, *device])
        design = Design.make(varied, f"preset {preset.name}", seeds=seeds)
        planned.append((variant, _chosen(design, choice.methods)))
    return planned, changes


def _check(override: str, preset: Preset) -> None:
    """What a preset compares is not for --set: its rows would not be what they are called."""
    keys = _keys(override)
    if keys[0] in ("compare", "method", "seed"):
        raise FedmuxError(f'--set "{override}": choose with --methods and --seeds')
    for variant in preset.source.variants:
        whole = [["task"], ["tasks"]] if variant.tasks and len(keys) == 1 else []
        for own in [*whole, *map(_keys, variant.set)]:
            if all(a == b for a, b in zip(keys, own)):
                raise FedmuxError(
                    f'--set "{override}": the variants of {preset.name} differ in {".".join(own)}; '
                    "`--print` shows it as an experiment file to change"
                )


def _keys(override: str) -> list[str]:
    return override.partition("=")[0].strip().split(".")


def _varied(table: dict[str, Any], variant: Variant | None, overrides: Sequence[str]) -> dict[str, Any]:
    """A variant's keys, then the user's."""
    table = copy.deepcopy(table)
    if variant is not None:
        table["task"] = table["task"][: variant.tasks]
        for override in variant.set:
            put(table, override)
    for override in overrides:
        put(table, override)
    return table


def _chosen(design: Design, labels: Sequence[str]) -> Design:
    """Only these methods, by their labels; the baseline stays, or nothing could be set against it."""
    known = {label_of(method): method for method in design.methods}
    if unknown := [label for label in labels if label not in known]:
        raise FedmuxError(f'{design.source}: has no method "{unknown[0]}"; its methods: {", ".join(known)}')
    chosen = [method for label, method in known.items() if not labels or label in (*labels, design.baseline)]
    return replace(design, methods=chosen)
