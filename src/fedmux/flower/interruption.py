"""When a federation on this machine ends before its run does: on a signal, or with its parent process."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from fedmux.errors import Interrupted


@contextlib.contextmanager
def interruptible(hint: str) -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP unwind the block as Ctrl-C does; what is yielded raises once the parent is gone.

    A signal that is ignored stays ignored. Outside the main thread signals cannot be caught.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(f"stopped by {signal.Signals(number).name}; {hint}")

    parent = _followed()

    def check() -> None:
        if parent is not None and os.getppid() != parent:
            raise Interrupted(f"stopped: the process that started this one has ended; {hint}")

    caught = [number for number in (signal.SIGTERM, signal.SIGHUP) if not _ignored(number)]
    if threading.current_thread() is not threading.main_thread():
        caught = []
    before = {number: signal.signal(number, stop) for number in caught}
    try:
        yield check
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; {hint}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _followed() -> int | None:
    """The parent, if this process is to end with it; None in the background, where it keeps running.

    A shell gives its jobs, and setsid its command, a process group of their own; nohup ignores SIGHUP; `&`
    in a script ignores SIGINT.
    """
    own_group = os.getpgrp() == os.getpid()
    if own_group or _ignored(signal.SIGHUP) or _ignored(signal.SIGINT):
        return None
    return os.getppid()


def _ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN
