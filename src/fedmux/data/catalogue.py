"""The data sets fedmux knows by name: what they look like, how to get them, their checksums."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# Where Debian's package dataset-fashion-mnist puts the four official files.
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")

SAMPLE = "fashion-mnist-sample"
EMBEDDED = (SAMPLE, "digits")


@dataclass(frozen=True)
class Known:
    """A set with a name. `sha256` is over the decoded arrays, so every place that has the set must agree."""

    classes: int
    point: tuple[int, ...]  # shape of one input
    sha256: str | None = None  # None: there is nothing to compare with (see `fetch.verify`)
    by_hand: str = ""  # what to do where every place `fetch` knows has failed


KNOWN: dict[str, Known] = {
    "fashion-mnist": Known(
        10,
        (28, 28),
        "436368f71cd2a74d62e90cee6d07a346c013c0c5c5111128ea6b56c1ca507fef",
        "apt-get install dataset-fashion-mnist, or take the four idx files of zalandoresearch/fashion-mnist",
    ),
    SAMPLE: Known(10, (28, 28), "d78113d7531b5a7738e2ee3696b1c93bf97f234884facc9d0d6acc6a1bf28a42"),
    "mnist": Known(
        10,
        (28, 28),
        "7fee734672dea6608aa7747335ba52c59dd5c68222678cd3ddeeeb776a49ea0d",
        "take the four idx files of MNIST",
    ),
    "emnist": Known(
        47,
        (28, 28),
        None,
        "take gzip.zip from NIST's page on EMNIST",
    ),
    "cifar10": Known(
        10,
        (32, 32, 3),
        "4b365b6bf92309a9010580b49123f011d6ec5805d8c7104d31d123abcd1b2c33",
        "take cifar-10-binary.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "shakespeare": Known(
        80,
        (80,),
        "3f231600b6744394125c8eb46dada9c0a66a082cd36e574c4520fe71e50dd423",
        "write a .tsv with the columns play, role, line",
    ),
    "digits": Known(10, (8, 8)),
}


def how_to_get(name: str) -> str:
    """The remedy, as a command."""
    if name in EMBEDDED:
        return "comes with fedmux"
    if name in KNOWN:
        return f"fedmux data get {name}"
    return f"fedmux data add {name} PATH"


def checksum(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over keys, types, shapes and values, in the order of the keys."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data.cast("B") if array.dtype.kind != "U" else array.tobytes())
    return digest.hexdigest()
