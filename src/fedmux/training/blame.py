"""A user's own code that fails: one line says where, the run folder keeps all of it."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedmux.distributed.memory import is_shortage
from fedmux.distributed.team import TeamLost
from fedmux.errors import FedmuxError, Interrupted
from fedmux.importing import FAILURES, first_line, place_in_own_code
from fedmux.runs.layout import ERROR
from fedmux.runs.state import continues
from fedmux.training.training import Training


@contextmanager
def blamed(folder: Path) -> Iterator[None]:
    """What a module, loss or method of the user's raises inside is a FedmuxError; SystemExit too."""
    (folder / ERROR).unlink(missing_ok=True)  # of the attempt before
    try:
        yield
    except TeamLost as lost:
        if lost.whole:
            raise _told(str(lost), lost.whole, folder) from lost
        raise
    except (Interrupted, MemoryError):
        raise
    except FedmuxError as error:
        if not place_in_own_code(error.__cause__) or _of_an_observer(error):
            raise
        raise _told(str(error), _all_of(error.__cause__ or error), folder) from error
    except FAILURES as error:
        place = place_in_own_code(error)
        if place is None or is_shortage(error) or _of_an_observer(error):
            raise
        raise _told(f"{place}: {first_line(error)}", _all_of(error), folder) from error


def _of_an_observer(error: BaseException) -> bool:
    """What an observer raises is meant for whoever called `run` with it, who may want to end the run so."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is Training._record.__code__ for frame, _ in frames)


def _all_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _told(line: str, whole: str, folder: Path) -> FedmuxError:
    told = FedmuxError(f"{line}; all of it is in {folder / ERROR}; mend it, then {continues(folder)}")
    with suppress(OSError):  # a full disk
        (folder / ERROR).write_text(whole, "utf-8")
    told.kept = True
    return told
