"""`fedmux data add NAME PATH`: take a set from files the user has, official or of his own."""

import re
from pathlib import Path

from fedmux.data import cache, shakespeare
from fedmux.data.arrays import from_parts
from fedmux.data.catalogue import EMBEDDED
from fedmux.data.formats import (
    BALANCED,
    CIFAR_FILE,
    IDX_FILE,
    Arrays,
    cifar_set,
    idx_set,
    read_files,
    read_npz,
)
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
    if name in EMBEDDED:
        raise FedmuxError(f'data "{name}" comes with fedmux and cannot be replaced; choose another name')
    source = Path(path).expanduser()
    if not source.exists():
        raise FedmuxError(f"{source} does not exist")
    arrays = _read(source, name)
    if name == "shakespeare" and "text" not in arrays:
        raise FedmuxError(f'{source} lacks "text"; for "shakespeare" give a .tsv of play, role and line')
    from_parts(arrays, name)
    return cache.write(name, arrays)


def _read(source: Path, name: str) -> Arrays:
    if source.name.endswith((".npz", ".npz.xz")):
        return read_npz(source)
    if source.name.endswith((".tsv", ".tsv.xz")):
        return shakespeare.read_tsv(source)
    if source.is_file() and not source.name.endswith(ARCHIVES):
        if not IDX_FILE.fullmatch(source.name) and not CIFAR_FILE.fullmatch(source.name):
            raise FedmuxError(f"{source} is of no known kind; give {ACCEPTED}")
        source = source.parent  # one file of a set stands for the folder it is in
    if cifar := read_files(source, CIFAR_FILE):
        return cifar_set(cifar, str(source))
    if idx := read_files(source, IDX_FILE):
        has_balanced = any(file.startswith(BALANCED) for file in idx)
        has_plain = any(not file.startswith(BALANCED) for file in idx)
        return idx_set(idx, str(source), balanced=has_balanced and (name == "emnist" or not has_plain))
    raise FedmuxError(f"{source} holds no known file; give {ACCEPTED}")
