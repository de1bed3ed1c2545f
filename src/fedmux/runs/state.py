"""What state a run is in, why, and what continues it.

A run that is complete has its summary. Before that, the process that works on it holds the folder's lock,
which the kernel releases however the process ends; so `kill -9` shows at once. For a process on another
machine, whose lock may not be seen from here, the age of its last sign of life decides.
"""

import fcntl
import json
import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmux.runs.layout import CLIENTS, EXPERIMENT, LOCK, METRICS, STATE, SUMMARY

RUNNING, FINISHED, INTERRUPTED, FAILED = "running", "finished", "interrupted", "failed"
NOT_BEGUN = "not begun"  # a run of a comparison
SILENT = 60.0  # seconds without a sign of life after which a process on another machine counts as gone
AGAIN = "FEDMUX_AGAIN"  # environment variable: the command that continues a run, for the run's own process
KILLED = "it was killed, or its machine went down"


@dataclass(frozen=True)
class RunState:
    """The state of a run at a moment."""

    name: str
    reason: str | None = None  # why it was interrupted or failed
    seen: float | None = None  # while it is running: when its process gave a sign of life, in epoch seconds
    again: str | None = None  # what continues it, as a sentence

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else self.name

    def sign_of_life(self) -> str:
        """How long ago, in words; empty if nothing is known."""
        return "" if self.seen is None else f"last sign of life {_ago(time.time() - self.seen)} ago"


def is_finished(folder: Path) -> bool:
    return (folder / SUMMARY).exists()


def run_state(folder: Path) -> RunState:
    """Of the run in a folder. It never raises: what cannot be read is not known."""
    if is_finished(folder):
        return RunState(FINISHED)
    told, unreadable = _told(folder / STATE)
    seen = max((when for name in (STATE, METRICS) if (when := _written(folder / name))), default=None)
    name, why = told.get("state"), told.get("reason")
    elsewhere = name == RUNNING and told.get("host") != platform.node()
    if _is_held(folder / LOCK) or (elsewhere and seen is not None and time.time() - seen < SILENT):
        return RunState(RUNNING, seen=seen)
    again = continues(folder, told)
    if name in (INTERRUPTED, FAILED):
        return RunState(name, _line(why), again=again)
    if name == FINISHED:
        return RunState(INTERRUPTED, f"{SUMMARY} is missing", again=again)
    if unreadable:
        return RunState(INTERRUPTED, f"why is not known, {STATE} cannot be read", again=again)
    return RunState(INTERRUPTED, KILLED if name == RUNNING else None, again=again)


def continues(folder: Path, told: dict[str, Any] | None = None) -> str:
    """What continues the run in a folder; with real clients the command that was used, if it is known."""
    told = _told(folder / STATE)[0] if told is None else told
    if (folder / CLIENTS).exists():
        command = _line(told.get("again"))
        if command is None:
            return (
                "run its Flower app again with the same output to continue it, as in "
                f"`fedmux flower up {folder / EXPERIMENT} -o {folder}`"
            )
        return f"`{command}` continues it"
    if only_in_python_in(folder):
        return f"in Python, fedmux.resume({str(folder)!r}, experiment=...) continues it"
    return f"`fedmux resume {folder}` continues it"


def only_in_python_in(folder: Path) -> bool:
    """Whether the experiment has parts that were given in Python and cannot be imported: `<lambda>`."""
    try:
        return re.search(r'= "<[^"]*>"', (folder / EXPERIMENT).read_text("utf-8", "replace")) is not None
    except OSError:
        return False


def _told(file: Path) -> tuple[dict[str, Any], bool]:
    """What the run's own process wrote, and whether that cannot be read."""
    try:
        table = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}, False
    except (OSError, ValueError, RecursionError):
        return {}, True
    known = isinstance(table, dict) and table.get("state") in (RUNNING, FINISHED, INTERRUPTED, FAILED)
    return (table, False) if known else ({}, True)


def _line(value: Any) -> str | None:
    """A text in one line; None if it is none."""
    return value.strip().partition("\n")[0] or None if isinstance(value, str) else None


def _is_held(lock: Path) -> bool:
    """Whether a process works on the run. Trying takes the lock for a moment; writers allow for that."""
    try:
        file = os.open(lock, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(file)
    return False


def _written(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _ago(seconds: float) -> str:
    seconds = max(0, round(seconds))
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
