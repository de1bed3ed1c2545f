"""How a verb fails: lines on stderr, and a file with all that a user's own code had to say."""

import tempfile
import traceback
from typing import NoReturn

import typer

from fedmux.errors import FedmuxError
from fedmux.importing import first_line, place_in_own_code


def fail(message: str, code: int) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"fedmux: {line}", err=True)
    raise SystemExit(code)


def refuse(error: FedmuxError) -> NoReturn:
    """A user error; where the user's own code raised it, a file has the whole of it."""
    kept = error.kept or not place_in_own_code(error.__cause__)
    fail(str(error) if kept else f"{error}; {_keep(error.__cause__ or error)}", 2)


def refuse_own_code(error: BaseException) -> None:
    """What a user's own code raised where nobody expected it; returns if it was not the user's."""
    if place := place_in_own_code(error):
        fail(f"{place}: {first_line(error)}; {_keep(error)}", 2)


def _keep(error: BaseException) -> str:
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="fedmux-error-", suffix=".log", delete=False
    ) as file:
        file.write("".join(traceback.format_exception(error)))
    return f"all of it is in {file.name}"
