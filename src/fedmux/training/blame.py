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
        if not place_in_own_code(error.__cause__):
            raise
        raise _told(str(error), _all_of(error.__cause__ or error), folder) from error
    except FAILURES as error:
        place = place_in_own_code(error)
        if place is None or is_shortage(error):
            raise
        raise _told(f"{place}: {first_line(error)}", _all_of(error), folder) from error


def _all_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _told(line: str, whole: str, folder: Path) -> FedmuxError:
    told = FedmuxError(
        f"{line}; all of it is in {folder / ERROR}; mend it, then `fedmux resume {folder}` continues"
    )
    with suppress(OSError):  # a full disk
        (folder / ERROR).write_text(whole, "utf-8")
    told.kept = True
    return told
