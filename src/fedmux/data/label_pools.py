"""Drawing clients' points label by label, from one pool of points per label.

A client's points are spread evenly over its labels. Where a label's pool runs out, the client's other labels
fill the gap; a client that asks for counts rather than labels may fill it from any label.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedmux.errors import FedmuxError


@dataclass(frozen=True, eq=False)
class Wish:
    """What one client asks for; labels are numbered 0..C-1 in increasing order of those that occur."""

    labels: np.ndarray  # the client's labels: its points are spread evenly over them, unless
    counts: np.ndarray | None = None  # (C,) it says how many of each


def draw_by_label(
    labels: np.ndarray,
    holders: np.ndarray,
    sizes: np.ndarray,
    *,
    disjoint: bool,
    wish: Callable[[int, int, np.random.Generator], Wish],
    pool: np.random.Generator,
    own: Callable[[int], np.random.Generator],
) -> np.ndarray:
    """The points of each holder, one after the other, (sum of sizes,) int64.

    `pool` shuffles the points once; `own(client)` makes all draws of a client.
    """
    names, code, count = np.unique(labels, return_inverse=True, return_counts=True)  # (C,), (points,), (C,)
    shuffled = pool.permutation(len(labels))
    ordered = shuffled[np.argsort(code[shuffled], kind="stable")]  # label by label, random order inside
    starts = np.cumsum(count) - count
    taken = np.zeros_like(count)  # points of each label that are gone; stays 0 where clients may share
    parts: list[np.ndarray] = []
    for client, size in zip(holders.tolist(), sizes.tolist()):
        rng = own(client)
        room = count - taken
        wanted = wish(client, size, rng)
        counts, short = _counts(wanted, size, room, rng)
        if short:
            raise _shortage(client, size, names[np.sort(wanted.labels)], size - short, disjoint)
        for label in np.flatnonzero(counts).tolist():
            first, number = starts[label] + taken[label], counts[label]
            if disjoint:
                parts.append(ordered[first : first + number])
            else:
                parts.append(ordered[first + rng.choice(count[label], number, replace=False, shuffle=False)])
        if disjoint:
            taken += counts
    return np.concatenate(parts)


def _counts(wish: Wish, size: int, room: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Points to take of each label (C,), and how many of `size` no label could give."""
    if wish.counts is None:
        return _fill(np.zeros_like(room), size, wish.labels, room, rng)
    counts = np.minimum(wish.counts, room)
    counts, missing = _fill(counts, size - int(counts.sum()), wish.labels, room, rng)
    return _fill(counts, missing, np.arange(len(room)), room, rng)


def _fill(
    counts: np.ndarray, missing: int, among: np.ndarray, room: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Add `missing` points evenly over those labels in `among` that have room, the rest to random ones."""
    while missing:
        free = among[counts[among] < room[among]]
        if not len(free):
            break
        each, rest = divmod(missing, len(free))
        counts[free] += each
        if rest:
            counts[rng.permutation(free)[:rest]] += 1
        missing = int(np.maximum(counts - room, 0).sum())
        counts = np.minimum(counts, room)
    return counts, missing


def _shortage(client: int, size: int, labels: np.ndarray, left: int, disjoint: bool) -> FedmuxError:
    named = ", ".join(str(label) for label in labels[:8]) + (", ..." if len(labels) > 8 else "")
    plural = "s" if len(labels) > 1 else ""
    what = f"partition: client {client} needs {size} points of label{plural} {named}"
    if disjoint:
        return FedmuxError(
            f"{what} but only {left} are left; set disjoint = false, lower sizes, or take more data"
        )
    return FedmuxError(f"{what} but there are only {left}; lower sizes or take more data")
