"""What to do when a GPU has no memory left: give back what can be made again, do less at a time, wait.

Others may use the GPU too, and leave it again. So running out of memory ends a run only when a single row
does not fit after all that, and then as one line that says so.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import torch

from fedmux.errors import FedmuxError
from fedmux.importing import first_line

WAITS = (1.0, 5.0, 20.0)  # seconds for others to leave
SIGNS = ("out of memory", "ALLOC_FAILED")  # in messages of the driver and of cuBLAS, cuDNN and the like
Release = Callable[[], None]
T = TypeVar("T")


def nothing() -> None:
    """For those who hold nothing that could be given back."""


def is_shortage(error: Exception) -> bool:
    """Whether an error says that the device has no memory left: torch's own, or one of CUDA's libraries."""
    return isinstance(error, torch.OutOfMemoryError) or any(sign in str(error) for sign in SIGNS)


def in_parts(
    count: int, work: Callable[[slice], object], release: Release = nothing, most: int | None = None
) -> None:
    """Call `work` with consecutive slices of `count` rows, `most` at a time, fewer where memory is short.

    A part that ran out of memory is tried again, so `work` must not change anything that lasts before it has
    all the memory that it needs.
    """
    begin, size = 0, max(1, count if most is None else most)
    waits, released = list(WAITS), False
    while begin < count:
        part = slice(begin, min(begin + size, count))
        reason = _tried(work, part)
        if reason is None:
            begin = part.stop
            continue
        # Out of the handler, whose traceback holds on to what was allocated.
        release()
        _empty_cache()
        if released and part.stop - part.start > 1:
            size = -(-(part.stop - part.start) // 2)
        elif released:
            _wait(waits, reason)
        released = True


def patiently(work: Callable[[], T], release: Release = nothing) -> T:
    """The same for what cannot be divided, but may be done again from the start."""
    results: list[T] = []
    waits = [0.0, *WAITS]
    while (reason := _tried(lambda part: results.append(work()), slice(0))) is not None:
        release()
        _empty_cache()
        _wait(waits, reason)
    return results[-1]


def _tried(work: Callable[[slice], object], part: slice) -> str | None:
    """Why there was no memory; None: it is done."""
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
            f'the GPU has too little memory free ({reason}); free some, or choose execution.device = "cpu"; '
            "a run that had begun continues from its last checkpoint: `fedmux resume RUN`"
        )
    time.sleep(waits.pop(0))


def _empty_cache() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
