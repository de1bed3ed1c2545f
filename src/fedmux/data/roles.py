"""Text that belongs to roles, as next-character prediction: one owner per (play, role), after LEAF.

A set is kept as one array of letter codes (`text`), where each role's text begins (`offsets`, one more than
there are roles) and who they are (`roles`). Points are cut out of it when it is loaded: a window of 80
characters, and the character that follows. The first 80 % of each role's text is for training, the rest is
held out; no window crosses the border. Windows begin every 5 characters: every character would make 270 MB
of inputs that differ by one letter each, and 5 still shows each letter to the model 16 times an epoch.
"""

import lzma
import re
import string
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fedmux.data.dataset import Dataset
from fedmux.data.formats import DAMAGED, Arrays, in_one_line
from fedmux.errors import FedmuxError

# LEAF's 80 letters; a letter's code is its place here.
ALPHABET = "\n !\"&'(),-.0123456789:;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "}"
WINDOW = 80
STRIDE = 5
TRAIN_SHARE = 0.8
FEWEST_LINES = 3
FEWEST_WINDOWS = 2

_FOREIGN = re.compile(f"[^{re.escape(ALPHABET)}]")
_CODES = np.zeros(128, np.uint8)
_CODES[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))

Row = tuple[str, str, str]  # play, role, line


def encode(line: str) -> np.ndarray:
    """Letter codes. Accents are taken off, white space becomes one blank, any other character is dropped."""
    plain = _FOREIGN.sub("", unicodedata.normalize("NFKD", " ".join(line.split())))
    return _CODES[np.frombuffer(plain.encode("ascii"), np.uint8)]


def from_rows(rows: Iterable[Row], where: str) -> Arrays:
    """Collect each role's lines in order; roles of fewer than three lines are left out, as in LEAF."""
    lines: dict[tuple[str, str], list[str]] = {}
    for play, role, line in rows:
        lines.setdefault((play, role.upper()), []).append(line)
    texts = {
        f"{play}: {role}": encode(" ".join(of))
        for (play, role), of in lines.items()
        if len(of) >= FEWEST_LINES
    }
    if not texts:
        raise FedmuxError(f"{where} has no role of {FEWEST_LINES} or more lines")
    return {
        "text": np.concatenate(list(texts.values())),
        "offsets": np.cumsum([0, *(len(text) for text in texts.values())], dtype=np.int64),
        "roles": np.array(list(texts)),
    }


def read_tsv(path: Path) -> Arrays:
    """Rows of play, role and line, with tabs between them; plain or .xz."""
    return from_rows(_tsv_rows(path), str(path))


def _tsv_rows(path: Path) -> Iterator[Row]:
    try:
        with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as handle:
            for number, raw in enumerate(handle, 1):
                columns = raw.decode("utf-8").rstrip("\r\n").split("\t")
                if len(columns) != 3:
                    raise FedmuxError(
                        f"{path}, line {number}: {len(columns)} columns instead of three (play, role, line)"
                    )
                yield columns[0], columns[1], columns[2]
    except FedmuxError:
        raise  # a ValueError as well, but already in our words
    except FileNotFoundError:
        raise FedmuxError(f"{path} does not exist") from None
    except DAMAGED as error:
        raise FedmuxError(f"{path} cannot be read ({in_one_line(error)}); it must be UTF-8 text") from error


def window_starts(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where training windows begin, the owner of each (0..G-1), where held-out windows begin."""
    train: list[np.ndarray] = []
    owners: list[np.ndarray] = []
    test: list[np.ndarray] = []
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist()):
        border = begin + int(TRAIN_SHARE * (end - begin))
        starts = np.arange(begin, border - WINDOW, STRIDE)
        if len(starts) >= FEWEST_WINDOWS:
            owners.append(np.full(len(starts), len(train)))
            train.append(starts)
            test.append(np.arange(border, end - WINDOW, STRIDE))
    if not train:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    return np.concatenate(train), np.concatenate(owners), np.concatenate(test)


def to_dataset(arrays: Arrays, name: str) -> Dataset:
    text, offsets = arrays["text"], arrays["offsets"]
    if text.ndim != 1 or offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        raise FedmuxError(f'data "{name}": text and offsets must be one row each, offsets whole numbers')
    if offsets[0] != 0 or offsets[-1] != len(text) or (np.diff(offsets.astype(np.int64)) < 0).any():
        raise FedmuxError(f'data "{name}": offsets must rise from 0 to the length of text, {len(text)}')
    if text.dtype != np.uint8 or text.max(initial=0) >= len(ALPHABET):
        raise FedmuxError(f'data "{name}": text must be uint8 letter codes below {len(ALPHABET)}')
    train, owners, test = window_starts(offsets)
    if not len(train) or not len(test):
        raise FedmuxError(f'data "{name}": no role has enough text for windows of {WINDOW} characters')
    windows = np.lib.stride_tricks.sliding_window_view(text, WINDOW)
    return Dataset(
        train_x=windows[train],
        train_y=text[train + WINDOW].astype(np.int64),
        test_x=windows[test],
        test_y=text[test + WINDOW].astype(np.int64),
        inputs="tokens",
        classes=len(ALPHABET),
        groups=owners,
    ).check(name)
