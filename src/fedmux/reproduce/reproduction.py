"""Reruns a preset: prepares its comparisons, trains what is missing, writes the results.

    ROOT/<preset>/comparison.toml, runs/     the runs; with variants in ROOT/<preset>/<variant>/
    ROOT/<preset>/summary.json               every final accuracy, the table, the claims, where it was made
    ROOT/<preset>/curves.csv.gz              each task over the rounds, for all runs
    ROOT/<preset>/table.md, *.png            what a page shows; report.html has every chart of runs/

`--add-to` adds to what such a folder has, even if its runs/ is gone.

`--quick` has folders of its own, `ROOT/<preset>-quick`. A preset that shows another's runs finds them in that
one's folder.
"""

import functools
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from fedmux.comparison.design import Design, Elsewhere
from fedmux.comparison.folder import Comparison, is_finished
from fedmux.comparison.scheduling import Progress, Schedule
from fedmux.errors import FedmuxError
from fedmux.reproduce.kept import Kept
from fedmux.reproduce.outcome import Outcome, Part, outcome, row_name
from fedmux.reproduce.planning import Choice, designs
from fedmux.reproduce.preset import Preset, Variant
from fedmux.reproduce.quick import missing
from fedmux.reproduce.results import Results
from fedmux.runs.compared import Cell, label_of
from fedmux.runs.layout import SUMMARY

Watched = Callable[[Schedule, str | None], AbstractContextManager[Progress]]  # of the runs of a variant


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

        Without `train`, only what is there is read; plans are written only if results are added to.
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
        parts = [make(Design.at, *place) for place in places]
        absent = {name for part in parts if part.comparison.asked for name in missing(part.design.table)}
        if train and absent:
            ways = [f"fedmux data get {name}" for name in sorted(absent)]
            ways += [] if kept else ["or try --quick"]  # which would be another experiment
            raise FedmuxError(f"{preset.name}: data is not on this machine; {'; '.join(ways)}")
        _check_nothing_is_lost(folder, parts)
        if train or kept:  # only now, when all of it can be
            parts = [make(Design.create, *place) for place in places]
        overrides = kept.summary["overrides"] if kept else list(choice.overrides)
        return cls(preset, folder, parts, changes, overrides, kept)

    def train(self, parallel: int, watch: Watched) -> list[str]:
        """Train the runs that are missing, one variant after the other; a line for each failure."""
        failures: list[str] = []
        for part in self.parts:
            if part.comparison.asked:
                schedule = Schedule(part.comparison)
                with watch(schedule, part.variant) as progress:
                    failures += schedule.run(parallel, progress)
        return failures

    def missing(self) -> list[str]:
        """Runs that are not finished."""
        return [run for part in self.parts for run in part.missing()]

    def divergences(self, but: Sequence[str] = ()) -> list[str]:
        return [line for part in self.parts for line in part.comparison.divergences(but)]

    def outcome(self) -> Outcome:
        return outcome(self.preset, self.parts)

    def results(self) -> Results:
        """What came out so far, written to the folder."""
        return Results.write(
            self.folder, self.outcome(), self.parts, self.changes, self.overrides, kept=self.kept
        )


def _part(
    create: Callable[[Design, Path, Elsewhere], Comparison],
    variant: Variant | None,
    place: Path,
    design: Design,
    choice: Choice,
    kept: Kept | None,
) -> Part:
    """A variant's comparison, without the runs that are kept and those that were not asked for."""
    name = variant.name if variant else None
    if kept is None:
        return Part(name, create(design, place, ()), design)
    cells = {(cell.label, cell.seed): cell for cell in design.cells}
    there = {
        key: run
        for key, run in kept.of(name).items()
        if key in cells
        and not (run.preset and is_finished(place, cells[key]))  # the folder's own comes first
    }
    labels, seeds = {*choice.methods, design.baseline}, choice.seeds or len(design.seeds)
    others = {key for key in cells if (choice.methods and key[0] not in labels) or key[1] >= seeds}
    return Part(name, create(design, place, there.keys() | others), design, there)


def _with(kept: Kept, choice: Choice, preset: Preset) -> Choice:
    """What is kept, and what is asked for in addition."""
    asked = choice.methods or [label_of(method) for method in preset.table()["compare"]["methods"]]
    return replace(
        choice,
        seeds=max(kept.seeds, choice.seeds or (1 if choice.quick else preset.seeds)),
        methods=[*kept.labels, *asked],
        overrides=kept.settings(choice.quick, list(choice.overrides)),
    )


def _check_nothing_is_lost(folder: Path, parts: Sequence[Part]) -> None:
    """Refuses to overwrite results whose runs are gone."""
    try:
        rows = json.loads((folder / SUMMARY).read_text("utf-8"))["rows"]
        cells = dict.fromkeys((row.get("variant"), row["method"], row["seed"]) for row in rows)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return  # no results, or none that can be read
    by_variant = {part.variant: part for part in parts}
    for variant, label, seed in cells:
        part = by_variant.get(variant)
        if part and ((label, seed) in part.kept or part.comparison.finished(Cell(label, label, seed))):
            continue
        raise FedmuxError(
            f"{folder}: has results of {row_name(label, variant)}, seed {seed}, whose run is not here; go on "
            f"from them with --add-to {folder}, or choose another folder with -o"
        )


def _folder(variant: Variant | None) -> str:
    return variant.name.replace(" ", "-") if variant else ""
