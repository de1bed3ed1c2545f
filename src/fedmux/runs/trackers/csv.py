"""Rounds as CSV files."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmux.runs.atomic import write_atomically
from fedmux.runs.trackers.tracker import LAST, Tracker, parameters


class CSV(Tracker):
    """`csv/metrics.csv`, a line for each round; `parameters.csv` and `summary.csv`, a line for each value."""

    name = "csv"

    def open(self, folder: Path, table: dict[str, Any], name: str) -> int:
        self.folder = folder / "csv"
        self.folder.mkdir(exist_ok=True)
        self._pairs("parameters", parameters(table))
        self.path = self.folder / "metrics.csv"
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a line may be half there
        rows = list(csv.reader(io.StringIO(whole)))
        self.columns = rows[0] if rows else ["round", LAST]
        write_atomically(self.path, (whole or f"round,{LAST}\n").encode())
        self.file = self.path.open("a", newline="")
        return int(rows[-1][0]) if len(rows) > 1 else -1

    def log(self, round: int, values: dict[str, float]) -> None:
        if new := [key for key in values if key not in self.columns]:
            self._widen(new)
        writer = csv.DictWriter(self.file, self.columns, lineterminator="\n")
        writer.writerow({"round": round, **values})
        self.file.flush()

    def _widen(self, new: list[str]) -> None:
        """Some figures come only with a later round: the lines before it have none."""
        self.file.close()
        rows = list(csv.DictReader(io.StringIO(self.path.read_text())))
        self.columns += new
        wider = io.StringIO()
        writer = csv.DictWriter(wider, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.path, wider.getvalue().encode())
        self.file = self.path.open("a", newline="")

    def end(self, summary: dict[str, Any] | None) -> None:
        self.file.close()
        if summary is not None:
            self._pairs("summary", parameters(summary))

    def _pairs(self, name: str, values: Mapping[str, object]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("key", "value"), *values.items()])
        write_atomically(self.folder / f"{name}.csv", text.getvalue().encode())
