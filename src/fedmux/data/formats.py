"""Decoding the files data sets are published as: .npz, idx, CIFAR-10's binary batches. Never a pickle."""

import gzip
import io
import lzma
import math
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmux.errors import FedmuxError

Arrays = dict[str, np.ndarray]

PARTS = ("train_x", "train_y", "test_x", "test_y")
IMAGE_PARTS = ("train_images", "train_labels", "test_images", "test_labels")
TEXT_PARTS = ("text", "offsets", "roles")  # see roles.py

BALANCED = "emnist-balanced-"
CIFAR_ROW = 1 + 3 * 32 * 32

# What the standard library raises for files that are cut short or not what they are called.
DAMAGED = (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


def in_one_line(error: BaseException) -> str:
    """An exception's own words, fit for the brackets of a one-line message."""
    reason = getattr(error, "reason", error)  # urllib wraps what happened in brackets of its own
    return " ".join(str(reason).split()) or type(error).__name__


def read_npz(path: Path) -> Arrays:
    """The arrays of a set, under our keys, of an .npz or .npz.xz; anything else in the file is left alone."""
    try:
        with io.BytesIO(lzma.open(path).read()) if path.suffix == ".xz" else path.open("rb") as source:
            if not zipfile.is_zipfile(source):
                raise FedmuxError(f"{path} is not an .npz file; write it with numpy.savez")
            source.seek(0)
            with np.load(source, allow_pickle=False) as archive:
                wanted = _keys(set(archive.files), path)
                return {ours: archive[theirs] for ours, theirs in wanted.items()}
    except FedmuxError:
        raise  # a ValueError as well, but already in our words
    except FileNotFoundError:
        raise FedmuxError(f"{path} does not exist") from None
    except DAMAGED as error:
        raise FedmuxError(
            f"{path} cannot be read ({in_one_line(error)}); write it with numpy.savez from plain arrays"
        ) from error


def _keys(there: set[str], path: Path) -> dict[str, str]:
    """Our key -> the file's key, for whichever of the three layouts the file comes nearest to."""
    layout = max((PARTS, IMAGE_PARTS, TEXT_PARTS), key=lambda keys: len(there & set(keys)))
    missing = [key for key in layout if key not in there]
    if missing:
        raise FedmuxError(f'{path} lacks "{missing[0]}"; an .npz must hold {", ".join(layout)}')
    wanted = dict(zip(TEXT_PARTS if layout is TEXT_PARTS else PARTS, layout))
    return wanted | ({"groups": "groups"} if "groups" in there and layout is not TEXT_PARTS else {})


def read_files(path: Path, wanted: re.Pattern[str]) -> dict[str, bytes]:
    """Bare name -> content of the files wanted, from a folder, a tar or a zip. Nothing is unpacked."""
    found: dict[str, bytes] = {}
    try:
        if path.is_dir():
            found = {file.name: file.read_bytes() for file in path.iterdir() if wanted.fullmatch(file.name)}
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if wanted.fullmatch(name.rpartition("/")[2]):
                        found[name.rpartition("/")[2]] = archive.read(name)
        else:
            with tarfile.open(path, "r:*") as tar:
                for member in tar:
                    handle = tar.extractfile(member) if member.isfile() else None
                    if handle is not None and wanted.fullmatch(member.name.rpartition("/")[2]):
                        found[member.name.rpartition("/")[2]] = handle.read()
    except FileNotFoundError:
        raise FedmuxError(f"{path} does not exist") from None
    except DAMAGED as error:
        raise FedmuxError(f"{path} cannot be read ({in_one_line(error)}); download it again") from error
    return found


def decode_idx(content: bytes, where: str) -> np.ndarray:
    """An idx array of bytes, gzipped or not: magic 0, 0, 8, dimensions; then the sizes, then the values."""
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except DAMAGED as error:
            raise FedmuxError(f"{where} is damaged ({in_one_line(error)}); download it again") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or not 1 <= content[3] <= 3:
        raise FedmuxError(f"{where} is not an idx file of bytes (it begins with {content[:4].hex(' ')})")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise FedmuxError(f"{where} ends inside its header; download it again")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise FedmuxError(f"{where} has {len(content):,} bytes instead of {expected:,}; download it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def idx_set(files: dict[str, bytes], where: str) -> Arrays:
    """The four files of MNIST or Fashion-MNIST."""
    return _four(files, where, "", ("t10k", "test"))


def emnist_set(files: dict[str, bytes], where: str) -> Arrays:
    """The four files of EMNIST's balanced split, which hold every image transposed; here they are upright."""
    arrays = _four(files, where, BALANCED, ("test",))
    for part in ("train_x", "test_x"):
        arrays[part] = np.ascontiguousarray(arrays[part].transpose(0, 2, 1))
    return arrays


def _four(files: dict[str, bytes], where: str, prefix: str, tests: tuple[str, ...]) -> Arrays:
    arrays: Arrays = {}
    for part, names in (("train", ("train",)), ("test", tests)):
        for key, kind, dimensions in (("x", "images", 3), ("y", "labels", 1)):
            spellings = [
                f"{prefix}{name}-{kind}{mark}idx{dimensions}-ubyte{suffix}"
                for name in names
                for mark in "-."  # some unpackers turn the first into the second
                for suffix in (".gz", "")
            ]
            file = next((spelling for spelling in spellings if spelling in files), None)
            if file is None:
                raise FedmuxError(f"{where} lacks {spellings[0]}; all four files are needed")
            array = decode_idx(files[file], f"{where}: {file}")
            if array.ndim != dimensions:
                raise FedmuxError(f"{where}: {file} has {array.ndim} dimensions instead of {dimensions}")
            # A copy: views of bytes cannot be written to, which torch warns of.
            arrays[f"{part}_{key}"] = array.copy()
    return arrays


def cifar_set(files: dict[str, bytes], where: str) -> Arrays:
    """CIFAR-10's binary version: rows of a label, then the red, green and blue planes of 32 x 32."""
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    for name in [*batches, "test_batch"]:
        if f"{name}.bin" not in files:
            if name in files:
                raise FedmuxError(
                    f"{where} is CIFAR-10's python version, made of pickles, which fedmux does not read; "
                    "take the binary version, cifar-10-binary.tar.gz"
                )
            raise FedmuxError(f"{where} lacks {name}.bin; take the binary version, cifar-10-binary.tar.gz")
        if len(files[f"{name}.bin"]) == 0 or len(files[f"{name}.bin"]) % CIFAR_ROW:
            raise FedmuxError(f"{where}: {name}.bin is cut short; download it again")
    train = np.frombuffer(b"".join(files[f"{name}.bin"] for name in batches), np.uint8).reshape(-1, CIFAR_ROW)
    test = np.frombuffer(files["test_batch.bin"], np.uint8).reshape(-1, CIFAR_ROW)
    return {
        "train_x": _upright(train),
        "train_y": train[:, 0].copy(),
        "test_x": _upright(test),
        "test_y": test[:, 0].copy(),
    }


def _upright(rows: np.ndarray) -> np.ndarray:
    """n x 3073 -> n x 32 x 32 x 3"""
    return np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


@dataclass(frozen=True)
class Format:
    """Files that sets are published as: their bare names, and how they are decoded."""

    file: re.Pattern[str]
    decode: Callable[[dict[str, bytes], str], Arrays]  # name -> content, where they are from

    def read(self, path: Path, where: str = "") -> Arrays:
        """The set in a folder, a tar or a zip, which messages call `where`, by default its path."""
        return self.decode(read_files(path, self.file), where or str(path))


_FOUR = r"(?:train|t10k|test)-(?:images|labels)[-.]idx[13]-ubyte(?:\.gz)?"
CIFAR = Format(re.compile(r"(?:data_batch_[1-5]|test_batch)(?:\.bin)?"), cifar_set)
IDX = Format(re.compile(_FOUR), idx_set)
EMNIST = Format(re.compile(BALANCED + _FOUR), emnist_set)
FORMATS = (CIFAR, IDX, EMNIST)
