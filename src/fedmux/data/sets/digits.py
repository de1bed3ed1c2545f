"""Scikit-learn's digits: 1,797 handwritten digits of 8 x 8 pixels."""

import numpy as np

from fedmux.data.arrays import stratified
from fedmux.data.formats import Arrays
from fedmux.data.sets import Copy, NamedSet

TRAIN, TEST = 1438, 359


def embedded() -> Copy:
    return Copy("embedded", TRAIN, TEST, None, read)


def read() -> Arrays:
    """16 shades of grey stretched to 0..255, a fifth of each digit held out."""
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


SET = NamedSet(name="digits", classes=10, point=(8, 8), copy=embedded, embedded=True, order=6)
