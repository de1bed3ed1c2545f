"""Where data comes from: a name, a path ending in .npz, or `module:function` of the user's own."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmux.data import cache, catalogue, embedded, shakespeare
from fedmux.data.add import add
from fedmux.data.arrays import from_arrays, from_parts
from fedmux.data.catalogue import KNOWN, how_to_get
from fedmux.data.dataset import Dataset
from fedmux.data.formats import (
    DAMAGED,
    IDX_FILE,
    PARTS,
    Arrays,
    idx_set,
    read_files,
    read_npz,
)
from fedmux.errors import FedmuxError
from fedmux.importing import closest, current_directory_importable, first_line, import_object

__all__ = ["Available", "add", "available", "from_arrays", "load"]


def load(name: str) -> Dataset:
    """The data set a `data = ...` entry speaks of, checked."""
    if name not in KNOWN:
        if name.endswith((".npz", ".npz.xz")):
            return from_parts(read_npz(Path(name).expanduser()), name)
        if ":" in name:
            return _from_function(name)
    return from_parts(_arrays(name), name)


def _arrays(name: str) -> Arrays:
    if name == catalogue.SAMPLE:
        return embedded.sample()
    if name == "digits":
        return embedded.digits()
    path = cache.file_of(name)
    if path.exists():
        try:
            return read_npz(path)
        except FedmuxError as error:
            raise FedmuxError(
                f'data "{name}": {path} is damaged; delete it, then: {how_to_get(name)}'
            ) from error
    if name == "fashion-mnist" and catalogue.DEBIAN_FASHION_MNIST.is_dir():
        folder = catalogue.DEBIAN_FASHION_MNIST
        return idx_set(read_files(folder, IDX_FILE), str(folder), balanced=False)
    if name in KNOWN:
        instead = (
            f' (or use "{catalogue.SAMPLE}", which comes with fedmux)' if name == "fashion-mnist" else ""
        )
        raise FedmuxError(f'data "{name}" is not on this machine; get it with: {how_to_get(name)}{instead}')
    names = sorted({*KNOWN, *cache.names()})
    raise FedmuxError(
        f'data "{name}" is unknown{closest(name, names)}; known are {", ".join(names)}; '
        "a path ending in .npz and module:function work too"
    )


def _from_function(name: str) -> Dataset:
    """Call `module:function`."""
    function = import_object(name, "data")
    if not callable(function):
        raise FedmuxError(f'data "{name}": it is not a function')
    try:
        with current_directory_importable():
            made: Any = function()
    except Exception as error:
        raise FedmuxError(f'data "{name}": calling it failed: {first_line(error)}') from error
    if isinstance(made, Dataset):
        return made.check(name)
    if isinstance(made, tuple | list) and len(made) in (2, 4):
        return from_arrays(*made, name=name)
    raise FedmuxError(
        f'data "{name}": it returned {type(made).__name__}; '
        "return a fedmux Dataset, (x, y) or (x, y, test_x, test_y)"
    )


class Available(NamedTuple):
    """One row of `fedmux data list`; what is not known without reading everything is None."""

    name: str
    where: str  # "embedded", "cache", "Debian folder", "missing", "damaged"
    train: int | None
    test: int | None
    classes: int | None
    size: int | None  # bytes on disk
    get: str  # how to get it


def available() -> list[Available]:
    """Every known and added set, without reading more than headers and labels."""
    return [_row(name) for name in [*KNOWN, *(name for name in cache.names() if name not in KNOWN)]]


def _row(name: str) -> Available:
    classes = KNOWN[name].classes if name in KNOWN else None
    path, get = cache.file_of(name), how_to_get(name)
    if name == catalogue.SAMPLE:
        train, test = 10 * embedded.TRAIN_PER_CLASS, 10 * embedded.TEST_PER_CLASS
        return Available(name, "embedded", train, test, classes, embedded.SAMPLE_FILE.stat().st_size, get)
    if name == "digits":
        return Available(name, "embedded", embedded.DIGITS_TRAIN, embedded.DIGITS_TEST, classes, None, get)
    if path.exists():
        size = path.stat().st_size
        try:
            return Available(name, "cache", *_counts(path, classes), size, get)
        except (*DAMAGED, LookupError):
            return Available(name, "damaged", None, None, classes, size, get)
    if name == "fashion-mnist" and catalogue.DEBIAN_FASHION_MNIST.is_dir():
        size = sum(file.stat().st_size for file in catalogue.DEBIAN_FASHION_MNIST.iterdir())
        return Available(name, "Debian folder", 60_000, 10_000, classes, size, get)
    return Available(name, "missing", None, None, classes, None, get)


def _counts(path: Path, classes: int | None) -> tuple[int, int, int | None]:
    """Training points, held-out points, labels."""
    shapes = cache.shapes(path)
    with np.load(path, allow_pickle=False) as archive:
        if "text" in shapes:
            train, _, test = shakespeare.window_starts(archive["offsets"])
            return len(train), len(test), len(shakespeare.ALPHABET)
        if classes is None and all(archive[part].dtype.kind in "iu" for part in PARTS[1::2]):
            classes = 1 + max(int(archive[part].max()) for part in PARTS[1::2])
    return shapes["train_x"][0], shapes["test_x"][0], classes
