"""The runs below a folder: which there are, a line for each. Nothing outside the folder is reached."""

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from fedmux.runs.history import DAMAGED, DEPTH, SIGNS, History, is_run
from fedmux.runs.layout import ENVIRONMENT, EXPERIMENT, LOCK, POPULATION, STATE
from fedmux.runs.state import FINISHED, RUNNING, RunState, run_state
from fedmux.ui.follow import Follower, Snapshot

OPEN_RUNS = 24  # whose rounds are all kept in memory
READING = "being read"
BUDGET = 1.0  # seconds for reading runs that were not known yet; the others come with the next request
FILES = (*SIGNS, EXPERIMENT, POPULATION, STATE, LOCK)  # all that is read of a run


@dataclass(frozen=True)
class Row:
    """A run in the list."""

    key: str  # its path below the folder
    history: History
    state: RunState
    written: float


class Library:
    """A folder of runs."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.shown = str(root)
        self._brief: dict[str, Follower] = {}
        self._open: OrderedDict[str, Follower] = OrderedDict()
        self._lock = Lock()

    def follower(self, key: str) -> Follower | None:
        """Of the run at a path below the folder; None if there is none."""
        path = self._path(key)
        if path is None:
            return None
        with self._lock:
            found = self._open.pop(key, None) or Follower(path)
            self._open[key] = found
            while len(self._open) > OPEN_RUNS:
                self._open.popitem(last=False)
        return found

    def rows(self) -> list[Row]:
        """All runs, those begun last first."""
        paths = sorted(self._below("", DEPTH), key=self._begun, reverse=True)
        with self._lock:
            self._brief = {
                key: self._brief.get(key) or Follower(self.root / key, keep=False) for key in paths
            }
            followers = dict(self._brief)
        deadline = time.monotonic() + BUDGET
        rows = []
        for key, follower in followers.items():
            if not follower.known and time.monotonic() > deadline:
                name = Path(key).name
                rows.append(Row(key, History(self.root / key, name=name, label=""), RunState(READING), 0.0))
                continue
            now = follower.snapshot()
            found = state(now)
            rows.append(Row(key, now.history, found, max(now.written, found.seen or 0.0)))
        return rows

    def _below(self, key: str, depth: int) -> Iterator[str]:
        folder = self.root / key
        if is_run(folder):
            if self._path(key) is not None:
                yield key
        elif depth:
            try:
                inside = sorted(item.name for item in folder.iterdir() if item.is_dir())
            except OSError:
                return
            for name in inside:
                below = f"{key}/{name}" if key else name
                if name[0] != "." and (self.root / below).resolve().is_relative_to(self.root):
                    yield from self._below(below, depth - 1)

    def _path(self, key: str) -> Path | None:
        """Where a run lies, unless that, or a file of it, is outside the folder or hidden."""
        parts = key.split("/") if key else []
        if "\0" in key or any(part == "" or part.startswith(".") for part in parts):
            return None
        path = self.root.joinpath(*parts)
        try:
            if not path.resolve().is_relative_to(self.root) or not is_run(path):
                return None
            links = [path / name for name in FILES if (path / name).is_symlink()]
            inside = all(link.resolve().is_relative_to(self.root) for link in links)
        except OSError:  # a loop of links, a name that is too long
            return None
        return path if inside else None

    def _begun(self, key: str) -> float:
        for name in (ENVIRONMENT, "."):
            try:
                return (self.root / key / name).stat().st_mtime
            except OSError:
                continue
        return 0.0


def state(snapshot: Snapshot) -> RunState:
    """The state of a run now: it may have stopped since its files were last written."""
    history = snapshot.history
    if history.state == DAMAGED:
        return RunState(DAMAGED)
    now = run_state(history.path)
    if now.name == FINISHED and history.summary is None:  # it ended a moment ago: its summary comes next
        return RunState(RUNNING, seen=now.seen)
    return now
