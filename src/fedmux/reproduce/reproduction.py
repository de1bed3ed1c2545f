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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmux.comparison import Comparison, Design
from fedmux.errors import FedmuxError
from fedmux.problems import put
from fedmux.reproduce.outcome import Outcome, Part, outcome
from fedmux.reproduce.preset import Preset, Variant
from fedmux.reproduce.quick import missing, smaller


@dataclass(frozen=True)
class Reproduction:
    preset: Preset
    folder: Path
    parts: list[Part]
    changes: list[str]  # what is smaller than in the paper
    overrides: list[str]  # what the user changed

    @classmethod
    def prepare(
        cls,
        preset: Preset,
        root: Path,
        *,
        seeds: int | None = None,
        quick: bool = False,
        overrides: Sequence[str] = (),
        device: str | None = None,
        train: bool = True,
    ) -> "Reproduction":
        """Validate everything and write the plans; FedmuxError says what is missing before work starts."""
        table, changes = preset.table(), list[str]()
        if quick:
            table, changes = smaller(table)
        elif train and (absent := missing(table)):
            getting = "; ".join(f"fedmux data get {name}" for name in absent)
            raise FedmuxError(f"{preset.name}: data is not on this machine; {getting}; or try --quick")
        suffix = "-quick" if quick else ""
        numbers = list(range(seeds or (1 if quick else preset.seeds)))
        runs = root / (preset.source.name + suffix)
        if not train and not runs.exists():
            raise FedmuxError(f"{runs}: there is nothing yet; without --show it is trained")
        parts = []
        variants: list[Variant | None] = [*preset.source.variants] or [None]
        for variant in variants:
            here = [f"execution.device={device}"] if device else []
            varied = _varied(table, variant, [*overrides, *here])
            design = Design.make(varied, f"preset {preset.name}", seeds=numbers)
            design = _without_plan(design)
            place = runs / variant.name.replace(" ", "-") if variant else runs
            parts.append(Part(variant.name if variant else None, Comparison.create(place, design)))
        return cls(preset, root / (preset.name + suffix), parts, changes, list(overrides))

    def outcome(self) -> Outcome:
        return outcome(self.preset, self.parts)


def _varied(table: dict[str, Any], variant: Variant | None, overrides: Sequence[str]) -> dict[str, Any]:
    """A variant's keys first, so that the user has the last word."""
    table = copy.deepcopy(table)
    if variant is not None:
        table["task"] = table["task"][: variant.tasks]
        for override in variant.set:
            put(table, override)
    for override in overrides:
        put(table, override)
    return table


def _without_plan(design: Design) -> Design:
    """The experiment without its [compare]: methods and seeds are the design's own, and may grow."""
    table = {key: value for key, value in design.table.items() if key != "compare"}
    return Design(table, design.methods, design.seeds, design.vary, design.baseline, design.source)
