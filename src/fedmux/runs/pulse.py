"""Writes a run's `state.json` and touches it every few seconds while the run is at work.

Nothing here may stop a run: what cannot be written is left out.
"""

import contextlib
import json
import os
import platform
import threading
import time
from pathlib import Path

from fedmux.errors import FedmuxError, Interrupted
from fedmux.importing import first_line
from fedmux.runs.atomic import write_atomically
from fedmux.runs.layout import STATE
from fedmux.runs.state import FAILED, FINISHED, INTERRUPTED, RUNNING

BEAT = 5.0  # seconds between two signs of life


class Pulse:
    """The signs of life of the process that works on a run."""

    def __init__(self, folder: Path, again: str | None = None) -> None:
        """`again` is a command that continues the run, where that is not `fedmux resume`."""
        self.file, self.again = folder / STATE, again
        self._began = time.time()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="fedmux-pulse", daemon=True)

    def start(self) -> None:
        self._write(RUNNING)
        self._thread.start()

    def finished(self) -> None:
        """Everything is written but the summary."""
        self._write(FINISHED)

    def stop(self, error: BaseException | None, complete: bool) -> None:
        """No more signs of life; of a run that is not complete, what ended the work."""
        self._over.set()
        self._thread.join()
        if not complete:
            self._write(*_ending(error))

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(self.file)

    def _write(self, state: str, reason: str | None = None) -> None:
        told = {
            "state": state,
            "reason": reason,
            "host": platform.node(),
            "process": os.getpid(),
            "began": self._began,
            "again": self.again,
        }
        with contextlib.suppress(OSError):
            write_atomically(self.file, json.dumps(told, indent=1).encode(), durable=False)


def _ending(error: BaseException | None) -> tuple[str, str | None]:
    """The state in which an error leaves a run, and the reason in one line."""
    if error is None:
        return INTERRUPTED, None
    if isinstance(error, Interrupted):
        return INTERRUPTED, "stopped by Ctrl-C or SIGTERM"
    if not isinstance(error, Exception):
        return INTERRUPTED, "stopped at once by Ctrl-C or a signal"
    text = str(error) if isinstance(error, FedmuxError) else first_line(error)
    return FAILED, text.partition("\n")[0]
