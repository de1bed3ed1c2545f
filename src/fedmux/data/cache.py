"""The folder that keeps fetched and added sets: one uncompressed .npz each, written in one move.

Uncompressed, because reading is then as fast as the disk, and sizes can be read off the headers alone.
"""

import os
import zipfile
from pathlib import Path

import numpy as np
import platformdirs

from fedmux.data.formats import Arrays
from fedmux.errors import FedmuxError


def folder() -> Path:
    """`FEDMUX_DATA`, or the user's cache folder."""
    chosen = os.environ.get("FEDMUX_DATA")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("fedmux") / "data"


def made_folder() -> Path:
    """The folder, made if it is not there yet."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder(), error) from error
    return folder()


def file_of(name: str) -> Path:
    return folder() / f"{name}.npz"


def names() -> list[str]:
    """Every set in the cache, known or added."""
    return sorted(path.stem for path in folder().glob("*.npz"))


def write(name: str, arrays: Arrays) -> Path:
    """Store a set so that a reader sees either the old file or the whole new one, never a part."""
    made_folder()
    path = file_of(name)
    # The process id keeps two writers apart; the last one to finish wins, with a whole file.
    part = path.with_name(f".{name}.{os.getpid()}.part")
    try:
        with part.open("wb") as handle:
            np.savez(handle, **arrays)  # type: ignore[arg-type]  # the stubs read ** as allow_pickle too
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)
    return path


def _unwritable(path: Path, error: OSError) -> FedmuxError:
    return FedmuxError(
        f"cannot write {path} ({error.strerror}); free some space or set FEDMUX_DATA to another folder"
    )


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every array in an .npz, from the headers alone."""
    found: dict[str, tuple[int, ...]] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as handle:
                version = np.lib.format.read_magic(handle)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                found[member.removesuffix(".npy")] = read(handle)[0]
    return found
