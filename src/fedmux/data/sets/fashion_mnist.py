"""Fashion-MNIST: Zalando's 70,000 pictures of clothes. Debian packages the four official files."""

from pathlib import Path

from fedmux.data.downloads import four_idx_files
from fedmux.data.formats import IDX, Arrays
from fedmux.data.sets import Copy, NamedSet, Report
from fedmux.data.sets.fashion_mnist_sample import SAMPLE
from fedmux.errors import FedmuxError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist
OFFICIAL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


def installed() -> Copy | None:
    if not DEBIAN.is_dir():
        return None
    size = sum(file.stat().st_size for file in DEBIAN.iterdir())
    return Copy("Debian folder", 60_000, 10_000, size, lambda: IDX.read(DEBIAN))


def from_debian(folder: Path, report: Report) -> Arrays:
    copy = installed()
    if copy is None:
        raise FedmuxError("not installed")
    return copy.read()


def from_zalando(folder: Path, report: Report) -> Arrays:
    return four_idx_files(OFFICIAL, folder, report, "fashion-mnist")


SET = NamedSet(
    name="fashion-mnist",
    classes=10,
    point=(28, 28),
    format=IDX,
    copy=installed,
    places=(("Debian's folder", from_debian), ("the official place", from_zalando)),
    sha256="436368f71cd2a74d62e90cee6d07a346c013c0c5c5111128ea6b56c1ca507fef",
    by_hand=(
        "apt-get install dataset-fashion-mnist, or take the four idx files of zalandoresearch/fashion-mnist"
    ),
    instead=SAMPLE,
    order=0,
)
