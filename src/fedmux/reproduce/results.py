"""The results of a reproduction: files, written at once; pictures, drawn on request."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedmux.reproduce import files
from fedmux.reproduce.kept import Kept
from fedmux.reproduce.outcome import Outcome, Part
from fedmux.runs.history import find


@dataclass(frozen=True)
class Results:
    folder: Path
    outcome: Outcome
    parts: Sequence[Part]
    summary: dict[str, Any]  # as summary.json holds it
    kept: Kept | None = None

    @classmethod
    def write(
        cls,
        folder: Path,
        outcome: Outcome,
        parts: Sequence[Part],
        changes: Sequence[str],
        overrides: Sequence[str],
        kept: Kept | None = None,
    ) -> Self:
        """Into the folder, with what is smaller than in the paper and what the user changed."""
        also = {"quick": list(changes), "overrides": list(overrides)}
        summary = files.write(folder, outcome, parts, also, kept.summary if kept else None)
        return cls(folder, outcome, parts, summary, kept)

    @property
    def changes(self) -> list[str]:
        """What is smaller than in the paper."""
        return list(self.summary["quick"])

    @property
    def times(self) -> dict[str, tuple[float, int]]:
        """By machine: minutes on the clock, and runs."""
        made = {machine: found for machine, found in self.summary["made"].items() if found}
        return {machine: (found["clock"] / 60, found["runs"]) for machine, found in made.items()}

    def draw(self) -> None:
        """The pictures, and a report of the runs that are there."""
        from fedmux.report.page import write
        from fedmux.reproduce.pictures import write_pictures

        if self.kept:
            self.kept.copy_pictures(self.folder)
        write_pictures(self.folder, self.outcome, self.parts)
        folders = [part.comparison.folder(cell) for part in self.parts for cell in part.comparison.asked]
        if runs := find([folder for folder in folders if folder.exists()]):
            write(runs, self.folder / "report.html", self.outcome.preset.title)
