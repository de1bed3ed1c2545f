"""A preset at work: its comparisons in their folders, then tables, pictures and files.

    ROOT/<preset>/comparison.toml, runs/     the runs; with variants in ROOT/<preset>/<variant>/
    ROOT/<preset>/summary.json               every final accuracy, the table, the claims, where it was made
    ROOT/<preset>/curves.csv.gz              each task over the rounds, for all runs
    ROOT/<preset>/table.md, *.png            what a page shows; report.html has every chart of runs/

`--add-to` goes on from what such a folder has, of which runs/ may be gone.

`--quick` has folders of its own, `ROOT/<preset>-quick`. A preset that is drawn from another's runs finds them
in that one's folder.
"""

import copy
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmux.comparison.design import Cell, Design, label_of
from fedmux.comparison.folder import Comparison, Elsewhere, finished
from fedmux.errors import FedmuxError
from fedmux.experiment.overrides import put
from fedmux.reproduce.kept import Kept
from fedmux.reproduce.outcome import Outcome, Part, outcome, row_name
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
    add_to: Path | None = None  # results that there are already


@dataclass(frozen=True)
class Reproduction:
    preset: Preset
    folder: Path
    parts: list[Part]
    changes: list[str]  # what is smaller than in the paper
    overrides: list[str]  # what the user changed
    kept: Kept | None = None

    @classmethod
    def prepare(cls, preset: Preset, root: Path, choice: Choice, train: bool = True) -> "Reproduction":
        """Validate everything and write the plans; FedmuxError says what is missing before work starts.

        Without `train` only what is there is looked at; plans are written where results are added to.
        """
        kept = Kept.read(choice.add_to, preset) if choice.add_to else None
        planned, changes = designs(preset, _with(kept, choice, preset) if kept else choice)
        if kept:
            kept.check(changes, {variant.name if variant else "": design for variant, design in planned})
        suffix = "-quick" if choice.quick else ""
        folder, runs = (root / (name + suffix) for name in (preset.name, preset.source.name))
        if not train and not runs.exists() and not kept:
            raise FedmuxError(f"{runs}: there is nothing yet; without --show it is trained")
        make = functools.partial(_part, choice=choice, kept=kept)
        places = [(variant, runs / _folder(variant), design) for variant, design in planned]
        parts = [make(Comparison.look, *place) for place in places]
        absent = {name for part in parts if part.comparison.asked for name in missing(part.design.table)}
        if train and absent:
            ways = [f"fedmux data get {name}" for name in sorted(absent)]
            ways += [] if kept else ["or try --quick"]  # which would be another experiment
            raise FedmuxError(f"{preset.name}: data is not on this machine; {'; '.join(ways)}")
        _check_nothing_is_lost(folder, parts)
        if train or kept:  # only now, when all of it can be
            parts = [make(Comparison.create, *place) for place in places]
        overrides = kept.summary["overrides"] if kept else list(choice.overrides)
        return cls(preset, folder, parts, changes, overrides, kept)

    def outcome(self) -> Outcome:
        return outcome(self.preset, self.parts)


def _part(
    create: Callable[[Path, Design, Elsewhere], Comparison],
    variant: Variant | None,
    place: Path,
    design: Design,
    choice: Choice,
    kept: Kept | None,
) -> Part:
    """A variant's comparison; of what is kept, and of what was not asked for, nothing is to be trained."""
    name = variant.name if variant else None
    if kept is None:
        return Part(name, create(place, design, ()), design)
    cells = {(cell.label, cell.seed): cell for cell in design.cells()}
    there = {
        key: run
        for key, run in kept.of(name).items()
        if key in cells and not (run.preset and finished(place, cells[key]))  # rather that of the folder
    }
    labels, seeds = {*choice.methods, design.baseline}, choice.seeds or len(design.seeds)
    others = {key for key in cells if (choice.methods and key[0] not in labels) or key[1] >= seeds}
    return Part(name, create(place, design, there.keys() | others), design, there)


def _with(kept: Kept, choice: Choice, preset: Preset) -> Choice:
    """What is kept, and what is asked for besides."""
    asked = choice.methods or [label_of(method) for method in preset.table()["compare"]["methods"]]
    return replace(
        choice,
        seeds=max(kept.seeds, choice.seeds or (1 if choice.quick else preset.seeds)),
        methods=[*kept.labels, *asked],
        overrides=kept.settings(choice.quick, list(choice.overrides)),
    )


def _check_nothing_is_lost(folder: Path, parts: Sequence[Part]) -> None:
    """Results whose runs are gone would be written over by poorer ones."""
    try:
        rows = json.loads((folder / "summary.json").read_text("utf-8"))["rows"]
        cells = dict.fromkeys((row.get("variant"), row["method"], row["seed"]) for row in rows)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return  # there are none, or none that can be read
    by_variant = {part.variant: part for part in parts}
    for variant, label, seed in cells:
        part = by_variant.get(variant)
        if part and (
            (label, seed) in part.kept or finished(part.comparison.path, Cell(label, label, seed, {}))
        ):
            continue
        raise FedmuxError(
            f"{folder}: has results of {row_name(label, variant)}, seed {seed}, whose run is not here; go on "
            f"from them with --add-to {folder}, or choose another folder with -o"
        )


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
