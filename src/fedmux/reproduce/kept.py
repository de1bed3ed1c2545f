"""Results that were kept, to add to: measures and curves of their runs; the run folders are gone.

`summary.json` and `curves.csv.gz` of a reproduction hold what its table, its claims and most of its pictures
need, so seeds, methods and runs that had failed can be added to it, on another machine too.
"""

import csv
import gzip
import json
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from fedmux.comparison.design import Design
from fedmux.errors import FedmuxError
from fedmux.reproduce.files import COLUMNS, DIVERGED
from fedmux.reproduce.outcome import KeptRun, row_name
from fedmux.reproduce.preset import Preset
from fedmux.runs.compared import label_of
from fedmux.runs.layout import SUMMARY
from fedmux.runs.rounds import OverTasks, Round, TaskRound
from fedmux.runs.state import FINISHED

# Raised by damaged files. gzip's own error is an OSError too, so it must be caught before those.
DAMAGE = (ValueError, LookupError, TypeError, EOFError, zlib.error, csv.Error, gzip.BadGzipFile)

RunKey = tuple[str, str, int]  # variant or nothing, label, seed


class _Row(BaseModel):
    variant: str = ""
    method: str
    seed: int
    task: str
    final_accuracy: float | None  # None: it never joined

    @property
    def key(self) -> RunKey:
        return self.variant, self.method, self.seed


class _Measured(BaseModel):
    seeds: dict[int, float]


class _Made(BaseModel):
    since: str = Field(alias="from")
    to: str
    torch: str
    commits: list[str]
    runs: int
    seconds: float
    clock: float


class _Summary(BaseModel):
    """What is read of a summary.json; there is more."""

    preset: str
    quick: list[str]
    overrides: list[str]
    missing: dict[str, str]
    made: dict[str, _Made]
    beside: dict[str, int] = {}
    rows: list[_Row]
    table: dict[str, dict[str, _Measured]]


@dataclass(frozen=True)
class Kept:
    folder: Path
    summary: dict[str, Any]
    runs: dict[RunKey, KeptRun]
    others: dict[RunKey, KeptRun] = field(default_factory=dict)  # of the preset whose runs it shows too

    @classmethod
    def read(cls, folder: Path, preset: Preset) -> "Kept":
        """What a reproduction left in a folder, and beside it the one from whose runs it is drawn."""
        source = folder.resolve().parent / preset.source.name
        kept = cls(folder, *_read(folder, preset, source))
        if not preset.runs or not (source / SUMMARY).exists():
            return kept
        summary, runs = _read(source, preset.source)
        if any(summary[key] != kept.summary[key] for key in ("overrides", "quick")):
            return kept
        asked = {label_of(method) for method in preset.table()["compare"]["methods"]}
        others = {key: replace(run, preset=preset.runs) for key, run in runs.items() if key[1] in asked}
        return replace(kept, others=others)

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for _, label, _ in self.runs))

    @property
    def seeds(self) -> int:
        """Up to the last one."""
        return 1 + max((seed for _, _, seed in self.runs), default=0)

    def settings(self, quick: bool, overrides: list[str]) -> list[str]:
        """What --set changed; what is added must be made the same way."""
        made: list[str] = self.summary["overrides"]
        if bool(self.summary["quick"]) != quick:
            raise FedmuxError(
                f"{self.folder}: was made with{'out' * quick} --quick; so must be what is added"
            )
        if overrides and overrides != made:
            typed = "".join(f' --set "{override}"' for override in made) or " no --set"
            raise FedmuxError(f"{self.folder}: was made with{typed}; leave --set out to do the same")
        return made

    def check(self, changes: list[str], planned: dict[str, Design]) -> None:
        """That the experiment, by its variants, is the one of these runs, as far as they tell."""
        if changes != self.summary["quick"]:
            made = "; ".join(self.summary["quick"])
            raise FedmuxError(f"{self.folder}: was made with different --quick settings ({made})")
        for (variant, label, seed), run in {**self.others, **self.runs}.items():
            table, who = planned[variant].table, f"{self.folder}: {row_name(label, variant)}, seed {seed},"
            rounds = table["rounds"]
            early = "accuracy" in table.get("stop", {}) or set(run.diverged) == set(run.tasks)
            if run.rounds != rounds and not (early and 0 < run.rounds < rounds):
                raise FedmuxError(f"{who} has {run.rounds} rounds, not {rounds}: another experiment")
            if set(run.tasks) != {task["name"] for task in table["task"]}:
                raise FedmuxError(f"{who} has the tasks {', '.join(run.tasks)}: another experiment")

    def of(self, variant: str | None) -> dict[tuple[str, int], KeptRun]:
        """By label and seed."""
        runs = {**self.others, **self.runs}
        return {(label, seed): run for (of, label, seed), run in runs.items() if of == (variant or "")}

    def copy_pictures(self, folder: Path) -> None:
        """Those that need more than curves cannot be drawn again."""
        if folder.resolve() != self.folder.resolve():
            for picture in self.folder.glob("*.png"):
                shutil.copyfile(picture, folder / picture.name)


def accuracies(folder: Path) -> set[tuple[Any, ...]]:
    """What runs ended with: equal results mean the same run."""
    rows = _Summary.model_validate_json((folder / SUMMARY).read_bytes()).rows
    return {(*row.key, row.task, row.final_accuracy) for row in rows}


def _read(
    folder: Path, preset: Preset, source: Path | None = None
) -> tuple[dict[str, Any], dict[RunKey, KeptRun]]:
    """The summary of a folder, and its runs, whose curves may lie in another one, that has them too."""
    try:
        table = json.loads((folder / SUMMARY).read_text("utf-8"))
        summary = _Summary.model_validate(table)
        if summary.preset != preset.name:
            raise FedmuxError(f"{folder}: holds results of {summary.preset}, not of {preset.name}")
        labels = {label_of(method) for method in preset.table()["compare"]["methods"]}
        variants = {variant.name for variant in preset.source.variants} or {""}
        for row in summary.rows:
            if row.method not in labels or row.variant not in variants:
                unknown = row_name(row.method, row.variant)
                raise FedmuxError(f'{folder}: has "{unknown}", which {preset.name} does not compare')
        curves = folder / "curves.csv.gz"
        if source and not curves.exists() and (source / SUMMARY).exists():
            if not accuracies(folder) <= accuracies(source):
                raise FedmuxError(f"{folder}: lacks curves.csv.gz, and {source} has other runs")
            curves = source / "curves.csv.gz"
        return table, _runs(folder, summary, curves)
    except FedmuxError:
        raise
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise FedmuxError(f"{folder / SUMMARY}: is damaged ({where}: {problem['msg']})") from None
    except DAMAGE as error:
        raise FedmuxError(f"{folder}: its summary.json or curves.csv.gz is damaged ({error})") from None
    except OSError as error:
        raise FedmuxError(
            f"{error.filename or folder}: cannot be read ({error.strerror or error}); `fedmux reproduce` "
            "leaves summary.json and curves.csv.gz, papers/results/NAME has them"
        ) from None


def _runs(folder: Path, summary: _Summary, curves: Path) -> dict[RunKey, KeptRun]:
    final: dict[RunKey, dict[str, float | None]] = {}
    for row in summary.rows:
        final.setdefault(row.key, {})[row.task] = row.final_accuracy
    rounds: dict[RunKey, dict[int, Round]] = {key: {} for key in final}
    for line in csv.DictReader(gzip.decompress(curves.read_bytes()).decode().splitlines()):
        if (key := (line["variant"], line["method"], int(line["seed"]))) in final:
            number = int(line["round"])
            entry = rounds[key].setdefault(number, Round(number))
            entry.tasks[line["task"]] = TaskRound.read(dict(_numbers(line)))
    if lacking := next((key for key in final if not rounds[key]), None):
        raise FedmuxError(f"{curves}: lacks {row_name(lacking[1], lacking[0])}, seed {lacking[2]}")
    return {key: _run(folder, summary, key, final[key], rounds[key]) for key in final}


def _run(
    folder: Path, summary: _Summary, key: RunKey, final: dict[str, float | None], rounds: dict[int, Round]
) -> KeptRun:
    variant, label, seed = key
    known = {task: accuracy for task, accuracy in final.items() if accuracy is not None}
    tasks = {task: {"accuracy": accuracy} for task, accuracy in known.items()}
    table = summary.table[row_name(label, variant)]
    return KeptRun(
        folder / f"{label}-seed-{seed}",  # where nothing is
        label=label,
        seed=seed,
        tasks=list(final),
        rounds=max(rounds),
        state=FINISHED,
        metrics=[replace(entry, progress=_over_tasks(entry)) for entry in rounds.values()],
        summary={"accuracy": asdict(OverTasks.of(np.array(list(known.values())))), "tasks": tasks},
        measures={measure: found.seeds.get(seed) for measure, found in table.items()},
    )


def _numbers(line: dict[str, str]) -> Iterator[tuple[str, float]]:
    for column in [*COLUMNS, DIVERGED] if DIVERGED in line else COLUMNS:
        if text := line[column]:
            yield column, int(text) if text.isdigit() else float(text)


def _over_tasks(entry: Round) -> OverTasks | None:
    found = [figures.accuracy for figures in entry.tasks.values() if figures.accuracy is not None]
    return OverTasks.of(np.array(found)) if found else None
