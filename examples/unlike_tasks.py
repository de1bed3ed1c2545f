"""Data for three tasks that have nothing in common: pictures, patients, text. Nothing is downloaded."""

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # training and held-out inputs and targets

WINDOW = 20  # characters that are read before the next is guessed


def diabetes() -> Arrays:
    """scikit-learn's: how far the disease of 442 patients has come after a year, from ten measurements."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    x = (x - x.mean(0)) / x.std(0)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:342], order[342:]
    return x[train], y[train, None] / 100, x[test], y[test, None] / 100


def text() -> Arrays:
    """Python's own manual, one character after the other."""
    from pydoc_data.topics import topics

    whole = " ".join(topics[name] for name in sorted(topics))
    letters = np.array([ord(letter) for letter in whole.lower() if letter.isascii()], np.int64)[:60_000]
    known, counts = np.unique(letters, return_counts=True)
    known = known[counts > 100]
    numbers = np.searchsorted(known, letters[np.isin(letters, known)])
    starts = np.arange(0, len(numbers) - WINDOW, WINDOW)
    windows = numbers[starts[:, None] + np.arange(WINDOW)]
    nexts = numbers[starts + WINDOW]
    held_out = np.arange(len(starts)) % 10 == 0
    return windows[~held_out], nexts[~held_out], windows[held_out], nexts[held_out]
