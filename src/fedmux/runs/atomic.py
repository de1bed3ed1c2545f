"""Files that are written completely or not at all."""

import os
import re
from pathlib import Path


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Either the whole file is there or the old one is: a temporary file, flushed, then renamed.

    Unless `durable`, it may be lost when the machine goes down.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if not durable:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def is_temporary(path: Path) -> bool:
    return re.fullmatch(r"\..+\.\d+\.tmp", path.name) is not None
