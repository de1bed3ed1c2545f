"""Follows a run: each time only what has been added to its log is read."""

import itertools
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from fedmux.runs.history import History
from fedmux.runs.layout import ENVIRONMENT, EXPERIMENT, METRICS, SUMMARY
from fedmux.runs.reading import parse_rounds
from fedmux.runs.rounds import Round

REST = (EXPERIMENT, ENVIRONMENT, SUMMARY)  # if one changes, everything is read again

Stamp = tuple[int, int, int] | None
_versions = itertools.count(1)


class Snapshot(NamedTuple):
    """A run at a moment."""

    history: History
    version: int  # differs whenever the history differs
    written: float  # when a file of the run was last written, in seconds of the epoch


class Follower:
    """Keeps the history of a run up to date; without `keep` only its newest rounds, for long lists."""

    def __init__(self, path: Path, keep: bool = True) -> None:
        self.path = path
        self._keep = keep
        self._lock = Lock()
        self._history: History | None = None
        self._version = 0
        self._rest: list[Stamp] = []
        self._log: Stamp = None
        self._offset = 0  # of the log, up to where it has been read
        self._tail = b""  # its last line before that: a log that was cut and grew again has another

    @property
    def known(self) -> bool:
        """Whether it has been read before."""
        return self._history is not None

    def snapshot(self) -> Snapshot:
        """The run as it is now. Earlier snapshots do not change."""
        with self._lock:
            rest = [_stamp(self.path / name) for name in REST]
            log = _stamp(self.path / METRICS)
            history = self._history
            if history is None or rest != self._rest:
                history = self._read()
            elif log != self._log:
                history = self._grown(history) or self._read()
            self._rest, self._log = rest, log
            if history is not self._history:
                self._history, self._version = history, next(_versions)
            written = max((stamp[2] / 1e9 for stamp in (*rest, log) if stamp), default=0.0)
            return Snapshot(history, self._version, written)

    def _read(self) -> History:
        history = History.read(self.path, live=True)
        self._offset, self._tail = _place(self.path / METRICS, history.metrics)
        return self._trimmed(history)

    def _grown(self, history: History) -> History | None:
        """With the rounds added to the log; None if the log did more than grow."""
        try:
            with (self.path / METRICS).open("rb") as file:
                file.seek(self._offset - len(self._tail))
                data = file.read()
        except OSError:
            return None
        if not data.startswith(self._tail):
            return None
        log = data[len(self._tail) :]
        added, lines, _ = parse_rounds(log, history.last_round if history.metrics else -1)
        if len(added) < lines:
            return None
        if not added:
            return history
        end = log.rindex(b"\n") + 1
        self._offset += end
        self._tail = log[log.rfind(b"\n", 0, end - 1) + 1 : end]
        fresh = replace(history, metrics=history.metrics + added)
        if history.__dict__.get("population"):  # written once
            fresh.population = history.population
        return self._trimmed(fresh)

    def _trimmed(self, history: History) -> History:
        if not self._keep:
            history.metrics = _newest(history.metrics)
        return history


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _place(log: Path, rounds: list[Round]) -> tuple[int, bytes]:
    """Where the rounds end in a log, and the line of the last one; the start if they are gone."""
    try:
        data = log.read_bytes() if rounds else b""
    except OSError:
        return 0, b""
    parts = data.split(b"\n", len(rounds))
    if len(parts) <= len(rounds) or not rounds or Round.parse(parts[-2]) != rounds[-1]:
        return 0, b""
    return len(data) - len(parts[-1]), parts[-2] + b"\n"


def _newest(rounds: list[Round]) -> list[Round]:
    """The last round, and before it the last one with scores."""
    for entry in reversed(rounds):
        if any(task.score is not None for task in entry.tasks.values()):
            return [entry, rounds[-1]] if entry is not rounds[-1] else [entry]
    return rounds[-1:]
