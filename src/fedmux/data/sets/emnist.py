"""EMNIST, the balanced split: 131,600 handwritten digits and letters of 47 classes, from NIST."""

from pathlib import Path

import numpy as np

from fedmux.data.downloads import download
from fedmux.data.formats import EMNIST, Arrays
from fedmux.data.sets import NamedSet, Report
from fedmux.errors import FedmuxError

OFFICIAL = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
CLASSES, POINT = 47, (28, 28)


def from_nist(folder: Path, report: Report) -> Arrays:
    archive = download(OFFICIAL, folder / "gzip.zip", report)
    return EMNIST.read(archive, archive.name)


def check(arrays: Arrays) -> None:
    """The shape, and the exact balance of the classes, which the split is named after.

    No checksum of the official files was at hand when this was written.
    """
    for part, count in (("train", 2400), ("test", 400)):
        balanced = np.array_equal(np.bincount(arrays[f"{part}_y"]), [count] * CLASSES)
        if not balanced or arrays[f"{part}_x"].shape != (count * CLASSES, *POINT):
            raise FedmuxError(f"what came is not the balanced split ({count} of each of {CLASSES} classes)")


SET = NamedSet(
    name="emnist",
    classes=CLASSES,
    point=POINT,
    format=EMNIST,
    places=(("the official place", from_nist),),
    check=check,
    by_hand="take gzip.zip from NIST's page on EMNIST",
    order=3,
)
