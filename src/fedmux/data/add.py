"""`fedmux data add NAME PATH`: take a set from files the user has, official or of his own."""

import re
from pathlib import Path

from fedmux.data import cache, roles
from fedmux.data.arrays import from_parts
from fedmux.data.formats import FORMATS, Arrays, read_files, read_npz
from fedmux.data.sets import NamedSet, known
from fedmux.errors import FedmuxError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
ACCEPTED = (
    "an .npz, a .tsv of play, role and line, the idx files of MNIST, Fashion-MNIST or EMNIST, "
    "or CIFAR-10's binary version"
)


def add(name: str, path: str | Path) -> Path:
    """Decode and check what is at `path`, and keep it in the cache under `name`."""
    if not NAME.fullmatch(name) or name.endswith((".npz", ".xz")):
        raise FedmuxError(f'"{name}" cannot name a data set; use letters, digits, "-", "_" and "."')
    named = known().get(name)
    if named and named.embedded:
        raise FedmuxError(f'data "{name}" comes with fedmux and cannot be replaced; choose another name')
    source = Path(path).expanduser()
    if not source.exists():
        raise FedmuxError(f"{source} does not exist")
    arrays = _read(source, named)
    if named and named.needs not in arrays:
        raise FedmuxError(f'{source} lacks "{named.needs}"; for "{name}" {named.by_hand}')
    from_parts(arrays, name)
    return cache.write(name, arrays)


def _read(source: Path, named: NamedSet | None) -> Arrays:
    if source.name.endswith((".npz", ".npz.xz")):
        return read_npz(source)
    if source.name.endswith((".tsv", ".tsv.xz")):
        return roles.read_tsv(source)
    if source.is_file() and not source.name.endswith(ARCHIVES):
        if not any(format.file.fullmatch(source.name) for format in FORMATS):
            raise FedmuxError(f"{source} is of no known kind; give {ACCEPTED}")
        source = source.parent  # one file of a set stands for the folder it is in
    own = (named.format,) if named and named.format else ()
    for format in (*own, *FORMATS):
        if files := read_files(source, format.file):
            return format.decode(files, str(source))
    raise FedmuxError(f"{source} holds no known file; give {ACCEPTED}")
