"""The ServerApp's process, which Flower starts and nobody waits for: whether it has died, and how."""

import contextlib
import signal
from pathlib import Path
from typing import NamedTuple

from fedmux.flower.watchdog import marked

STATE, EXIT_CODE = 0, 49  # of /proc/*/stat, after the name


class Death(NamedTuple):
    how: str
    sudden: bool = False  # too sudden for it to log a reason


class ServerProcess:
    """The oldest of a federation's; the mark is that of its processes."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._number: int | None = None

    def find(self) -> int | None:
        """Its number, from the first time that it is seen."""
        if self._number is None:
            self._number = min(filter(_is_server, marked(self.mark)), default=None)
        return self._number

    def died(self) -> Death | None:
        """None if it runs, or has not been seen yet."""
        number = self.find()
        if number is None:
            return None
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return Death("ended")
        return _how(int(fields[EXIT_CODE])) if fields[STATE] in "ZX" else None


def _is_server(process: int) -> bool:
    with contextlib.suppress(OSError):  # ended since
        return b"flwr-serverapp" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def _how(status: int) -> Death:
    """From a status as wait() gives it."""
    number, code = status & 0x7F, status >> 8
    if number == signal.SIGKILL:
        return Death("was killed by SIGKILL, as the system does when memory runs out", sudden=True)
    if number:
        return Death(f"was killed by signal {number} ({signal.strsignal(number)})", sudden=True)
    return Death(f"ended with exit code {code}")
