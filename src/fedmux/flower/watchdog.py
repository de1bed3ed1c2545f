"""Finds and ends the processes of a federation, also after the process that started it was killed.

All of them have the federation's mark, a variable, in their environment, which they inherit however Flower
starts them. This file is also a program: it waits until its standard input closes, as it does whatever
becomes of the process at the other end, then kills all with the mark and removes the folder, if it was given
one. It imports little, so that it is up before there is anything to end.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 20.0  # seconds for killed processes to be gone


def marked(mark: str) -> list[int]:
    """Processes that have the mark, `NAME=value`; those that have ended and were not waited for have none."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # ended since, or not ours
            if mark.encode() in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def end(mark: str) -> None:
    """Kill all with the mark, and what they start meanwhile."""
    limit = time.monotonic() + PATIENCE
    while (left := marked(mark)) and time.monotonic() < limit:
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


@contextlib.contextmanager
def watched(mark: str, folder: Path | None) -> Iterator[None]:
    """Whatever becomes of this process, those with the mark, and the folder, do not outlive the block."""
    watchdog = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark, *([str(folder)] if folder else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    assert watchdog.stdin is not None
    try:
        yield
    finally:
        watchdog.stdin.close()
        watchdog.wait()


def _main(mark: str, *folders: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # which may go to all of a service
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    end(mark)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
