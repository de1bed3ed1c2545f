"""Fewer points than there are rounds, clients and runs: what an eye can see and a page can hold."""

import math
from collections.abc import Iterable

import numpy as np

from fedmux.population import Floats, Ints

MOST_POINTS = 300  # of one line
MOST_BARS = 100  # side by side
MOST_BYTES = 220_000  # of the rows of one chart
MOST_SERIES = 24  # lines of different names in one chart
MOST_PANELS = 12


def bin_width(last: int, series: int, most: int = MOST_POINTS, row: int = 75) -> int:
    """Rounds that share a point, for so many lines of rounds 0..last with rows of so many bytes."""
    points = max(6, min(most, MOST_BYTES // (max(series, 1) * row)))
    return max(1, math.ceil((last + 1) / points))


def thin(points: Iterable[tuple[int, float]], width: int) -> dict[int, float]:
    """Means over bins of rounds, by the middle of the bin; with a width of 1 the points themselves."""
    bins: dict[int, list[float]] = {}
    for round, value in points:
        bins.setdefault(middle(round, width), []).append(value)
    return {round: math.fsum(values) / len(values) for round, values in bins.items()}


def middle(round: int, width: int) -> int:
    """The round that stands for the bin of another."""
    return round // width * width + (width - 1) // 2


def bins_note(width: int) -> str:
    return f"each point is the mean of {width} rounds" if width > 1 else ""


def cut_note(shown: int, of: int, what: str) -> str:
    return f"the first {shown} of {of} {what}" if shown < of else ""


def parts(length: int, most: int) -> Ints:
    """The part (0, 1, ...) of each of `length` things in order, at most `most` parts of nearly equal size."""
    return np.arange(length) * min(length, most) // max(length, 1)


def part_means(values: Floats, part: Ints) -> Floats:
    """Means of the rows of each part."""
    sums = np.zeros((part.max(initial=-1) + 1, *values.shape[1:]))
    np.add.at(sums, part, values)
    counts = np.bincount(part).reshape(-1, *[1] * (values.ndim - 1))
    return sums / counts
