"""A data set as fedmux sees it: training and held-out arrays, and what their inputs are."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedmux.errors import FedmuxError

Inputs = Literal["images", "tokens", "numbers"]


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
            if len(x) != len(y):
                raise FedmuxError(f'data "{name}": {part} has {len(x)} inputs but {len(y)} targets')
            if len(x) == 0:
                raise FedmuxError(f'data "{name}": the {part} part is empty; give at least one point')
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                row = int(np.argmin(np.isfinite(x).reshape(len(x), -1).all(1)))
                raise FedmuxError(
                    f'data "{name}": {part} input {row} holds NaN or infinity; remove or impute it'
                )
            if y.dtype.kind == "f" and not np.isfinite(y).all():
                row = int(np.argmin(np.isfinite(y).reshape(len(y), -1).all(1)))
                raise FedmuxError(
                    f'data "{name}": {part} target {row} is NaN or infinite; remove or correct it'
                )
            if self.classes is not None and (y.min() < 0 or y.max() >= self.classes):
                bad = int(np.argmax((y < 0) | (y >= self.classes)))
                raise FedmuxError(
                    f'data "{name}": {part} label {y[bad]} at row {bad} is out of range; '
                    f"labels must be 0..{self.classes - 1}"
                )
        return self
