"""The data sets fedmux knows by name, one file each.

A file of this package defines `SET`, a `NamedSet`; adding the file is all it takes to add the set.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedmux.data.formats import Arrays, Format
from fedmux.errors import FedmuxError

Report = Callable[[str], object]
Place = Callable[[Path, Report], Arrays]  # an empty folder to download into, where to report progress


@dataclass(frozen=True)
class Copy:
    """A copy of a set that is on this machine without fedmux having fetched it."""

    where: str  # as `fedmux data list` calls it
    train: int  # points
    test: int
    size: int | None  # bytes on disk
    read: Callable[[], Arrays]


@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """What a set looks like, where it comes from, and how to recognise it."""

    name: str
    classes: int
    point: tuple[int, ...]  # shape of one input
    needs: str = "train_x"  # an array that the set must have: "text" where it is the text of roles
    format: Format | None = None  # the files that it is published as
    copy: Callable[[], Copy | None] = lambda: None  # the copy on this machine, if there is one
    embedded: bool = False  # `copy` comes with fedmux: there is nothing to fetch or to add
    places: tuple[tuple[str, Place], ...] = ()  # where it can be fetched, tried in this order
    sha256: str | None = None  # over the decoded arrays (`fetch.checksum`), so all places must agree
    check: Callable[[Arrays], None] | None = None  # raises FedmuxError; where no checksum is known
    by_hand: str = ""  # what to do where every place has failed
    instead: str = ""  # an embedded set that will do where this one is missing
    order: int = 100  # in `fedmux data list`; sets of the same order by name


def known() -> dict[str, NamedSet]:
    """Every named set, in the order of `fedmux data list`."""
    files = pkgutil.iter_modules(__path__)
    sets = [_defined(file.name) for file in files]
    return {one.name: one for one in sorted(sets, key=lambda one: (one.order, one.name))}


def _defined(module: str) -> NamedSet:
    found = getattr(importlib.import_module(f"{__name__}.{module}"), "SET", None)
    if not isinstance(found, NamedSet):
        raise FedmuxError(f"data/sets/{module}.py defines no SET; add SET = NamedSet(name=..., ...)")
    return found
