"""The sets that need no fetching: a shipped sample of Fashion-MNIST, and scikit-learn's digits."""

import io
import lzma
from pathlib import Path

import numpy as np

from fedmux.data.arrays import stratified
from fedmux.data.formats import IDX_FILE, Arrays, idx_set, read_files, read_npz

SAMPLE_FILE = Path(__file__).parent / "sample" / "fashion-mnist.npz.xz"
TRAIN_PER_CLASS = 600
TEST_PER_CLASS = 100
DIGITS_TRAIN, DIGITS_TEST = 1438, 359


def sample() -> Arrays:
    return read_npz(SAMPLE_FILE)


def digits() -> Arrays:
    """1,797 handwritten digits of 8 x 8; 16 shades of grey stretched to 0..255, a fifth of each held out."""
    from sklearn.datasets import load_digits  # takes a second: only for those who ask for it

    found = load_digits()
    images = np.round(found.images * (255 / 16)).astype(np.uint8)
    labels = found.target.astype(np.uint8)
    kept, held_out = stratified(labels)
    return {
        "train_x": images[kept],
        "train_y": labels[kept],
        "test_x": images[held_out],
        "test_y": labels[held_out],
    }


def choose_sample(full: Arrays, *, train_per_class: int, test_per_class: int) -> Arrays:
    """The same number of images of each class, drawn without repetition, in the order of the full set."""
    rng = np.random.default_rng(0)
    chosen: Arrays = {}
    for part, count in (("train", train_per_class), ("test", test_per_class)):
        labels = full[f"{part}_y"]
        rows = [
            rng.choice(np.flatnonzero(labels == label), count, replace=False) for label in np.unique(labels)
        ]
        order = np.sort(np.concatenate(rows))
        chosen |= {f"{part}_x": full[f"{part}_x"][order], f"{part}_y": labels[order]}
    return chosen


def pack(arrays: Arrays) -> bytes:
    """An .npz inside xz. Predicting pixels first would not help: it made the file 3 to 12 % larger."""
    plain = io.BytesIO()
    np.savez(plain, **arrays)  # type: ignore[arg-type]  # the stubs read ** as allow_pickle too
    return lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def rebuild(folder: Path) -> Arrays:
    """The sample again, from the four official files in `folder`; `pack` makes the shipped file of it."""
    full = idx_set(read_files(folder, IDX_FILE), str(folder), balanced=False)
    return choose_sample(full, train_per_class=TRAIN_PER_CLASS, test_per_class=TEST_PER_CLASS)
