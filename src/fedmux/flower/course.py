"""The course of a run, as its log of events and its processes show it: what the server says, why it ends."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedmux.flower.serverapp import ServerProcess

LAST_WORDS = 2.0  # seconds from a ServerApp's death until its log is complete
Process = subprocess.Popen[bytes]


class Course:
    """A run as its processes show it: whether it is still going, and why it ended."""

    def __init__(
        self,
        run: Process,
        superlink: Process,
        server: ServerProcess,
        logs: Path,
        check: Callable[[], None],
    ) -> None:
        """`check` raises when nobody wants the run any more."""
        self.run, self.superlink, self.server, self.logs, self.check = run, superlink, server, logs, check
        self._died = 0.0

    def over(self) -> bool:
        """Flower itself needs a minute to notice that a ServerApp was killed."""
        self.check()
        if self.run.poll() is not None or self.superlink.poll() is not None:
            return True
        if self.server.died() is None:
            return False
        self._died = self._died or time.monotonic()
        return time.monotonic() - self._died > LAST_WORDS

    def reason(self) -> str:
        """Why it is over, if the server has not logged it."""
        death = self.server.died()
        if death is None and self.superlink.poll() is not None:
            return f"the SuperLink ended: {last_line(self.logs / 'superlink.log')}"
        error = None if death and death.sudden else last_error(self.logs / "run.log")
        parts = [f"the ServerApp {death.how}"] if death else []
        return "; ".join([*parts, error] if error else parts) or "Flower reports no error"


def follow(over: Callable[[], bool], log: Path, place: int, notice: Callable[[str], None]) -> str | None:
    """Show the server's notices until the run is over; the reason if the server stopped by itself."""
    stopped = None
    for event in _events(over, log, place):
        if event["event"] == "notice":
            notice(event["text"])
        elif event["event"] == "stopped":
            stopped = event["reason"]
    return stopped


def _events(over: Callable[[], bool], log: Path, place: int) -> Iterator[dict[str, Any]]:
    """Those logged after a place in the file, as they come, until the run is over."""
    ended = False
    while not ended:
        ended = over()  # before reading, so that nothing is missed
        if log.exists():
            with log.open("rb") as file:
                place = place if place <= file.seek(0, os.SEEK_END) else 0  # it was rotated away
                file.seek(place)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    place += len(line)
                    with contextlib.suppress(ValueError):
                        yield json.loads(line)
        if not ended:
            time.sleep(0.2)


def last_error(log: Path) -> str | None:
    """From Flower's log of a run whose server could not log the reason; clients' failures do not count."""
    errors = [line.strip() for line in _lines(log) if "Error" in line and not line.startswith("client")]
    return errors[-1].removeprefix("fedmux.errors.FedmuxError: ") if errors else None


def last_line(log: Path) -> str:
    return next((line.strip() for line in reversed(_lines(log)) if line.strip()), "its log is empty")


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()
