"""Where data comes from: a name, a path ending in .npz, or `module:function` of the user's own."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmux.data import cache, roles
from fedmux.data.arrays import from_arrays, from_parts
from fedmux.data.dataset import Dataset
from fedmux.data.formats import DAMAGED, PARTS, Arrays, read_npz
from fedmux.data.sets import NamedSet, known
from fedmux.errors import FedmuxError
from fedmux.importing import (
    FAILURES,
    closest,
    current_directory_importable,
    first_line,
    import_object,
    name_of,
)

FUNCTION = "a function without arguments that returns (x, y), (x, y, test_x, test_y) or a fedmux.Dataset"


def load(name: str | Callable[[], Any]) -> Dataset:
    """The data set a `data = ...` entry speaks of, checked."""
    if not isinstance(name, str):
        return _called(name, name_of(name))
    sets = known()
    if name not in sets:
        if name.endswith((".npz", ".npz.xz")):
            return from_parts(read_npz(Path(name).expanduser()), name)
        if ":" in name:
            return _from_function(name)
    return from_parts(_arrays(name, sets), name)


def _arrays(name: str, sets: dict[str, NamedSet]) -> Arrays:
    named, path = sets.get(name), cache.file_of(name)
    if _is_cached(path, named):
        try:
            return read_npz(path)
        except FedmuxError as error:
            get = how_to_get(name, named)
            raise FedmuxError(f'data "{name}": {path} is damaged; delete it, then: {get}') from error
    if named and (copy := named.copy()):
        return copy.read()
    if named:
        get = how_to_get(name, named)
        instead = f' (or use "{named.instead}", which comes with fedmux)' if named.instead else ""
        raise FedmuxError(f'data "{name}" is not on this machine; get it with: {get}{instead}')
    names = sorted({*sets, *cache.names()})
    raise FedmuxError(
        f'data "{name}" is unknown{closest(name, names)}; known are {", ".join(names)}; '
        "a path ending in .npz and module:function work too"
    )


def _is_cached(path: Path, named: NamedSet | None) -> bool:
    """Whether the set's file in the cache counts: nothing takes the place of a set that comes with fedmux."""
    return path.exists() and not (named and named.embedded)


def how_to_get(name: str, named: NamedSet | None) -> str:
    """The remedy, as a command."""
    if named and named.embedded:
        return "comes with fedmux"
    if named and named.places:
        return f"fedmux data get {name}"
    return f"fedmux data add {name} PATH"


def _from_function(name: str) -> Dataset:
    """Call `module:function`."""
    function = import_object(name, "data")
    if not callable(function):
        raise FedmuxError(f'data "{name}": it is not {FUNCTION}')
    return _called(function, name)


def _called(function: Callable[[], Any], name: str) -> Dataset:
    try:
        with current_directory_importable():
            made: Any = function()
    except FAILURES as error:
        hint = "" if _takes_no_arguments(function) else f"; it should be {FUNCTION}"
        raise FedmuxError(f'data "{name}": calling it failed: {first_line(error)}{hint}') from error
    if isinstance(made, Dataset):
        return made.check(name)
    if isinstance(made, tuple | list) and len(made) in (2, 4):
        return from_arrays(*made, name=name)
    raise FedmuxError(
        f'data "{name}": it returned {type(made).__name__}; '
        "return a fedmux Dataset, (x, y) or (x, y, test_x, test_y)"
    )


def _takes_no_arguments(function: Callable[[], Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


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
    sets = known()
    return [_row(name, sets.get(name)) for name in dict.fromkeys([*sets, *cache.names()])]


def _row(name: str, named: NamedSet | None) -> Available:
    classes = named.classes if named else None
    path, get = cache.file_of(name), how_to_get(name, named)
    if _is_cached(path, named):
        size = path.stat().st_size
        try:
            return Available(name, "cache", *_counts(path, classes), size, get)
        except (*DAMAGED, LookupError):
            return Available(name, "damaged", None, None, classes, size, get)
    if named and (copy := named.copy()):
        return Available(name, copy.where, copy.train, copy.test, classes, copy.size, get)
    return Available(name, "missing", None, None, classes, None, get)


def _counts(path: Path, classes: int | None) -> tuple[int, int, int | None]:
    """Training points, held-out points, labels."""
    shapes = cache.shapes(path)
    with np.load(path, allow_pickle=False) as archive:
        if "text" in shapes:
            train, _, test = roles.window_starts(archive["offsets"])
            return len(train), len(test), len(roles.ALPHABET)
        if classes is None and all(archive[part].dtype.kind in "iu" for part in PARTS[1::2]):
            classes = 1 + max(int(archive[part].max()) for part in PARTS[1::2])
    return shapes["train_x"][0], shapes["test_x"][0], classes
