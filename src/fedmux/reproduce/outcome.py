"""What a preset's runs came to: rows of measures beside the paper's figures, and its claims judged."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedmux.comparison.design import Design
from fedmux.comparison.folder import Comparison
from fedmux.reproduce.measures import parse
from fedmux.reproduce.preset import Claim, Figure, Preset
from fedmux.runs.compared import Cell
from fedmux.runs.history import History
from fedmux.runs.statistics import deviation, mean, paired_difference

HOLDS, FAILS, OPEN, UNKNOWN = "holds", "does not hold", "not clear", "not known"
ANEW = ("relative", "relative-minimum")  # set against another run, which may be a new one


@dataclass(eq=False)
class KeptRun(History):
    """A run whose folder is gone; its measures and curves were kept."""

    measures: dict[str, float | None] = field(default_factory=dict, repr=False)
    preset: str = ""  # for which it was made


def row_name(label: str, variant: str | None) -> str:
    return f"{label}, {variant}" if variant else label


@dataclass(frozen=True)
class Part:
    """The comparison of one variant, or the only one."""

    variant: str | None
    comparison: Comparison
    design: Design  # of the preset, which may be a part of what the folder holds
    kept: dict[tuple[str, int], KeptRun] = field(default_factory=dict)  # by label and seed; not in the folder

    @cached_property
    def cells(self) -> list[Cell]:
        """Those that the folder is to hold, and those that are kept."""
        return self.design.cells

    def row(self, label: str) -> str:
        return row_name(label, self.variant)

    @cached_property
    def runs(self) -> dict[str, dict[int, History]]:
        """Finished runs by label and seed; every label, also one without any."""
        found: dict[str, dict[int, History]] = {}
        for cell in self.cells:
            group = found.setdefault(cell.label, {})
            if kept := self.kept.get((cell.label, cell.seed)):
                group[cell.seed] = kept
            elif self.comparison.finished(cell):
                group[cell.seed] = History.read(self.comparison.folder(cell))
        return found

    def missing(self) -> dict[str, str]:
        """Runs that are not finished, with the last line of their output."""
        absent = [cell for cell in self.cells if cell.seed not in self.runs[cell.label]]
        return {self.row(cell.name): self.comparison.last_words(cell) for cell in absent}


@dataclass(frozen=True)
class Value:
    """A measure of one row, by seed, and what the paper has for it."""

    by_seed: dict[int, float]
    paper: Figure | None = None
    finished: int | None = None  # runs; not all need have it, such as those that never reached an accuracy
    asked: int | None = None

    @property
    def mean(self) -> float | None:
        return mean(self.by_seed.values())

    @property
    def deviation(self) -> float | None:
        """Over seeds."""
        return deviation(self.by_seed.values())

    def table(self) -> dict[str, Any]:
        value: dict[str, Any] = {"mean": self.mean, "std": self.deviation, "seeds": self.by_seed}
        if self.paper is not None:
            value["paper"] = self.paper.model_dump(exclude_none=True)
        return value


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    against: str
    difference: float | None
    half_width: float | None  # of the 95 % confidence interval
    verdict: str

    def table(self) -> dict[str, Any]:
        return {
            "says": self.claim.says,
            "measure": self.claim.measure,
            "of": self.claim.of,
            "over": self.against,
            "by": self.claim.by,
            "within": self.claim.within,
            "at_most": self.claim.at_most,
            "difference": self.difference,
            "half_width": self.half_width,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Outcome:
    preset: Preset
    rows: dict[str, dict[str, Value]]  # by row, by measure
    verdicts: list[Verdict] = field(default_factory=list)

    def has_figures(self, measure: str) -> bool:
        return any(row[measure].paper is not None for row in self.rows.values())

    def table(self) -> dict[str, Any]:
        return {name: {key: value.table() for key, value in row.items()} for name, row in self.rows.items()}


def outcome(preset: Preset, parts: Sequence[Part]) -> Outcome:
    """From the runs that are finished."""
    rows: dict[str, dict[str, Value]] = {}
    for part in parts:
        runs, references = part.runs, part.design.references()
        asked = Counter(cell.label for cell in part.cells)
        for label, group in runs.items():
            base, row = runs[references[label]], part.row(label)
            rows[row] = {key: _value(preset, key, row, group, base, asked[label]) for key in preset.read}
    return judged(preset, rows)


def judged(preset: Preset, rows: dict[str, dict[str, Value]]) -> Outcome:
    verdicts = [_judge(claim, other, rows) for claim in preset.claims for other in claim.over]
    return Outcome(preset, rows, verdicts)


def _value(
    preset: Preset, key: str, row: str, runs: dict[int, History], base: dict[int, History], asked: int
) -> Value:
    found = {seed: _read(key, run, base.get(seed)) for seed, run in runs.items()}
    known = {seed: value for seed, value in found.items() if value is not None}
    paper = preset.figures.get(key, {}).get(row)
    return Value(known, paper, len(runs), asked)


def _read(key: str, run: History, base: History | None) -> float | None:
    measure, argument = parse(key)
    if isinstance(run, KeptRun) and key not in ANEW and (key in run.measures or not measure.from_curves):
        return run.measures.get(key)
    return measure.read(run, base, argument)


def _judge(claim: Claim, other: str, rows: dict[str, dict[str, Value]]) -> Verdict:
    """By the paired differences over seeds: clear if their confidence interval lies on one side."""
    mine, theirs = (rows[row][claim.measure].by_seed if row in rows else {} for row in (claim.of, other))
    difference, half = paired_difference(mine, theirs)
    if difference is None:
        return Verdict(claim, other, None, None, UNKNOWN)
    if half is None:
        return Verdict(claim, other, difference, None, OPEN)
    if claim.at_most is not None:
        holds, fails = difference + half <= claim.at_most, difference - half > claim.at_most
    elif claim.within is not None:
        holds, fails = abs(difference) + half <= claim.within, abs(difference) - half > claim.within
    else:
        holds, fails = difference - half >= claim.by, difference + half < claim.by
    return Verdict(claim, other, difference, half, HOLDS if holds else FAILS if fails else OPEN)
