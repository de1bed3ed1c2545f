"""What to do when a GPU is out of memory: free what can be rebuilt, use smaller parts, wait.

Others may be using the GPU and may leave again. So running out of memory ends a run only if a single row does
not fit after all that, and then with a one-line error.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import torch

from fedmux.errors import FedmuxError
from fedmux.importing import first_line

WAITS = (1.0, 5.0, 20.0)  # seconds for others to leave
SIGNS = ("out of memory", "ALLOC_FAILED")  # in messages of the driver, cuBLAS, cuDNN and others
Release = Callable[[], None]
T = TypeVar("T")


def nothing() -> None:
    """For callers with no memory to free."""


def is_shortage(error: BaseException) -> bool:
    """Whether an error, from torch or a CUDA library, says that the device is out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or any(sign in str(error) for sign in SIGNS)


def in_parts(
    count: int, work: Callable[[slice], object], release: Release = nothing, most: int | None = None
) -> None:
    """Call `work` with consecutive slices of `count` rows, `most` at a time, fewer if memory is short.

    A part that ran out of memory is retried, so `work` must not change any lasting state before it has all
    the memory it needs.
    """
    begin, size = 0, max(1, count if most is None else most)
    waits, released = list(WAITS), False
    while begin < count:
        part = slice(begin, min(begin + size, count))
        reason = _tried(work, part)
        if reason is None:
            begin = part.stop
            continue
        # Outside the handler, whose traceback would keep allocations alive.
        release()
        _empty_cache()
        if released and part.stop - part.start > 1:
            size = -(-(part.stop - part.start) // 2)
        elif released:
            _wait(waits, reason)
        released = True


def patiently(work: Callable[[], T], release: Release = nothing) -> T:
    """The same for work that cannot be split, but can be repeated from the start."""
    results: list[T] = []
    waits = [0.0, *WAITS]
    while (reason := _tried(lambda part: results.append(work()), slice(0))) is not None:
        release()
        _empty_cache()
        _wait(waits, reason)
    return results[-1]


def _tried(work: Callable[[slice], object], part: slice) -> str | None:
    """Why there was no memory; None if the work is done."""
    try:
        work(part)
    except RuntimeError as error:
        if not is_shortage(error):
            raise
        return first_line(error).partition(". GPU ")[0]
    return None


def _wait(waits: list[float], reason: str) -> None:
    if not waits:
        raise FedmuxError(
            f'the GPU has too little free memory ({reason}); free some, or choose execution.device = "cpu"; '
            "a run that had started continues from its last checkpoint: `fedmux resume RUN`"
        )
    time.sleep(waits.pop(0))


def _empty_cache() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
