"""Reads a comparison's folder: its cells, which of them are finished, and the resulting table.

    DIR/comparison.toml            what is compared, and its cells
    DIR/experiments/<cell>.toml    one experiment for each cell
    DIR/runs/<cell>/               its run folder, beside it <cell>.log, the output of its process
    DIR/results.json               the table, written whenever it is made

Nothing here validates an experiment or needs torch.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmux.errors import FedmuxError
from fedmux.runs import finals
from fedmux.runs.atomic import write_atomically
from fedmux.runs.compared import Cell, cells_of, read_plan
from fedmux.runs.layout import CELLS, RESULTS, RUNS, SUMMARY
from fedmux.runs.reading import Run
from fedmux.runs.scale import ACCURACY, PROGRESS, scale_of_final
from fedmux.runs.state import FAILED, NOT_BEGUN
from fedmux.runs.statistics import deviation, mean, paired_difference, ratios
from fedmux.runs.survey import Survey

Summary = dict[str, Any]  # of a finished run
COSTS = ("uploads", "upload_bytes", "gradient_steps", "forward_passes")


class Comparison:
    """A comparison in its folder: all its cells, and those to be run here."""

    def __init__(
        self, path: Path, name: str, cells: Sequence[Cell], asked: Sequence[Cell], baseline: str | None
    ) -> None:
        self.path, self.name = path, name
        self.cells, self.asked = list(cells), list(asked)
        self.references = references(cells, baseline)

    @classmethod
    def open(cls, path: Path) -> "Comparison":
        """The comparison as it is there; cells without an experiment file are not run here."""
        plan = read_plan(path)
        cells = cells_of(plan)
        asked = [cell for cell in cells if experiment_file(path, cell).exists()]
        return cls(path, name_of(plan.get("experiment", {})), cells, asked, plan.get("baseline"))

    def folder(self, cell: Cell) -> Path:
        return self.path / RUNS / cell.name

    def log(self, cell: Cell) -> Path:
        return self.path / RUNS / f"{cell.name}.log"

    def finished(self, cell: Cell) -> bool:
        return is_finished(self.path, cell)

    def last_words(self, cell: Cell) -> str:
        """Why a run stopped before it finished; empty if it finished or has not begun."""
        return "" if self.finished(cell) else self.last_line(cell)

    def last_line(self, cell: Cell) -> str:
        """Of its log."""
        log = self.log(cell)
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1].removeprefix("fedmux: ") if lines else ""

    def runs(self) -> dict[str, dict[int, Run]]:
        """The finished runs by label and seed, but for damaged ones; labels without any included."""
        found: dict[str, dict[int, Run]] = {}
        for cell in self.cells:
            group = found.setdefault(cell.label, {})
            if self._summary(cell) is not None:
                group[cell.seed] = Run(self.folder(cell))
        return found

    def damages(self) -> list[str]:
        """A line for each finished run whose figures cannot be used."""
        return [str(problem) for cell in self.cells if (problem := self._problem(cell))]

    def states(self) -> list[str]:
        """A line for each run without usable figures: how far it is, and why."""
        lines, waiting = [], 0
        for cell in self.cells:
            if self.finished(cell):
                problem = self._problem(cell)
                lines += [f"{cell.name}: damaged: {problem}"] if problem else []
            elif Run.is_at(self.folder(cell)):
                lines.append(f"{cell.name}: {Survey.of(self.folder(cell), whole=False).progress}")
            elif reason := self.last_line(cell):
                lines.append(f"{cell.name}: {FAILED}: {reason}")
            else:
                waiting += 1
        return [*lines, f"{NOT_BEGUN}: {waiting} of {len(self.cells)} runs"] if waiting else lines

    def _summary(self, cell: Cell) -> Summary | None:
        """None if the run is not finished or its summary is damaged."""
        with contextlib.suppress(FedmuxError):
            return Run(self.folder(cell)).summary
        return None

    def _problem(self, cell: Cell) -> FedmuxError | None:
        """What is wrong with the figures of a finished run."""
        if self.finished(cell):
            try:
                _ = Run(self.folder(cell)).summary
            except FedmuxError as error:
                return error
        return None

    def divergences(self, but: Sequence[str] = ()) -> list[str]:
        """A line for each paused task of a finished run, except for runs that the lines in `but` report."""
        return [
            f'{cell.name}: task "{name}" diverged in round {found["round"]}: {found["reason"]}'
            for cell in self.asked
            if not any(line.startswith(f"{cell.name}: ") for line in but)
            for name, found in (self._summary(cell) or {}).get("diverged", {}).items()
        ]

    def results(self) -> list[dict[str, Any]]:
        """One row for each label: figures over seeds, compared with the baseline, and costs."""
        methods = {cell.label: cell.method for cell in self.cells}
        by_label = {
            label: {seed: run.summary for seed, run in runs.items()} for label, runs in self.runs().items()
        }
        found = [summary for runs in by_label.values() for summary in runs.values()]
        measure = ACCURACY if all(map(finals.by_accuracy, found)) else PROGRESS
        rows = []
        for label, runs in by_label.items():
            if runs:
                against = self.references[label]
                head = {"label": label, "method": methods[label], "against": against, "measure": measure}
                rows.append({**head, **_row(runs, by_label[against], measure)})
        write_atomically(self.path / RESULTS, json.dumps(rows, indent=1).encode())
        return rows


def experiment_file(path: Path, cell: Cell) -> Path:
    return path / CELLS / f"{cell.name}.toml"


def is_finished(path: Path, cell: Cell) -> bool:
    return (path / RUNS / cell.name / SUMMARY).exists()


def name_of(experiment: Mapping[str, Any]) -> str:
    """A title for what is compared."""
    return str(experiment.get("name", "comparison"))


def references(cells: Sequence[Cell], baseline: str | None) -> dict[str, str]:
    """For each label, the one it is compared with: the baseline with all else equal."""
    labels = list(dict.fromkeys(cell.label for cell in cells))
    methods = list(dict.fromkeys(cell.method for cell in cells))
    baseline = baseline or ("full" if "full" in methods else methods[0])
    if baseline not in (*labels, *methods):
        raise FedmuxError(f'baseline "{baseline}" is not compared; choose one of {", ".join(methods)}')
    if baseline not in labels and len(methods) == 1:
        baseline = labels[0]
    if baseline in labels:
        return dict.fromkeys(labels, baseline)
    return {cell.label: baseline + cell.label.removeprefix(cell.method) for cell in cells}


def _row(runs: dict[int, Summary], reference: dict[int, Summary], measure: str) -> dict[str, Any]:
    """Figures of the runs of one label, compared with those of another, by seed."""
    first = next(iter(runs.values()))
    mine, theirs = _means(runs), _means(reference)
    difference, half_width = paired_difference(mine, theirs)
    return {
        "baseline": runs is reference,
        "seeds": list(runs),
        "final_rounds": first["final_rounds"],
        measure: mean(mine.values()),
        f"{measure}_std": deviation(mine.values()),
        "minimum": mean(_known(finals.overall(run, "minimum") for run in runs.values())),
        "tasks": {  # in the unit of each
            name: mean(_known(finals.score(run, name) for run in runs.values())) for name in first["tasks"]
        },
        "metrics": {name: scale_of_final(final).words() for name, final in first["tasks"].items()},
        "relative": mean(ratios(mine, theirs)),
        "difference": difference,
        "difference_half_width": half_width,
        **{key: mean(run["totals"][key] / run["rounds"] for run in runs.values()) for key in COSTS},
        "seconds": mean(run["seconds"] for run in runs.values()),
        "diverged": {
            f"seed {seed}": sorted(run["diverged"]) for seed, run in runs.items() if run.get("diverged")
        },
    }


def _means(runs: dict[int, Summary]) -> dict[int, float]:
    """Over tasks, by seed."""
    found = {seed: finals.overall(run) for seed, run in runs.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
