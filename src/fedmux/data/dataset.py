"""A data set as fedmux sees it: training and held-out arrays, and what their inputs are."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedmux.errors import FedmuxError

Inputs = Literal["images", "tokens", "numbers"]
LARGEST = 1e12  # products of larger numbers overflow in float32


@dataclass(frozen=True, eq=False)
class Dataset:
    """Arrays in memory. `inputs` says how a point becomes a tensor:

    images   uint8, n x height x width (x channels): scaled to [0, 1] and standardised per channel
    tokens   integers, n x length: passed on as they are (an embedding comes first)
    numbers  floats of any shape: passed on as they are
    """

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    inputs: Inputs
    classes: int | None  # number of labels; None where targets are not labels
    groups: np.ndarray | None = None  # natural owner of each training point, 0..G-1

    def check(self, name: str) -> "Dataset":
        """Refuse what would fail, or silently spoil training, later: lengths, NaN, labels out of range."""
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            check_part(f'data "{name}": ', f"{part} ", x, y, self.classes)
        return self


def check_part(where: str, part: str, x: np.ndarray, y: np.ndarray, classes: int | None) -> None:
    """FedmuxError begins with `where`; `part` is "train ", "test ", or empty: nothing is held out yet."""
    if len(x) != len(y):
        has = f"{part}has " if part else ""
        raise FedmuxError(f"{where}{has}{len(x)} inputs but {len(y)} targets")
    if len(x) == 0:
        raise FedmuxError(f"{where}{f'the {part}part' if part else 'it'} is empty; give at least one point")
    for kind, values in (("input", x), ("target", y)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values).reshape(len(values), -1).all(1)))
            raise FedmuxError(
                f"{where}{part}{kind} {row} holds NaN or infinity; remove, correct or impute it"
            )
        if values.dtype.kind == "f" and max(values.max(initial=0), -values.min(initial=0)) > LARGEST:
            row, size = _largest(values)
            raise FedmuxError(
                f"{where}{part}{kind} {row} holds {size:g}, too large for training in single precision; "
                f"scale the {kind}s, for example to mean 0 and standard deviation 1"
            )
    if classes is not None and (y.min() < 0 or y.max() >= classes):
        bad = int(np.argmax((y < 0) | (y >= classes)))
        raise FedmuxError(
            f"{where}{part}label {y[bad]} at row {bad} is out of range; labels must be 0..{classes - 1}"
        )


def _largest(values: np.ndarray) -> tuple[int, float]:
    """The row of the number that is farthest from 0, and that number."""
    flat = np.abs(values).reshape(len(values), -1).max(1)
    row = int(flat.argmax())
    return row, float(flat[row])
