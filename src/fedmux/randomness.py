"""Randomness as a function of (seed, stream, round, client, task), never of history.

Each tuple names its own Philox counter block, so there is no generator state to save: a resumed run is
bit-identical, the order of clients does not matter, and one client can be re-run alone.
"""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What a draw is for. The numbers are part of what a seed means: add, never renumber."""

    CAPACITY = 0
    AVAILABILITY = 1
    PARTITION = 2
    CLUSTER = 3
    HELD_OUT = 4
    INITIAL = 5
    ALLOCATION = 6
    BATCHES = 7
    MODULE = 8
    DEAL = 9
    REPORTS = 10
    DRAW = 11
    BIDS = 12
    RECRUITMENT = 13
    DYNAMICS = 14
    ARRIVALS = 15
    ABSENCE = 16
    DROPOUT = 17
    GROUPS = 18
    SPEED = 19
    NOISE = 20


def generator(
    seed: int, stream: Stream, *, round: int = 0, client: int = 0, task: int = 0
) -> np.random.Generator:
    """The generator of one tuple; its draws advance the lowest of Philox's four counter words only."""
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, round, client, task]))


def torch_seed(seed: int, stream: Stream, *, round: int = 0, client: int = 0, task: int = 0) -> int:
    """A seed for torch's own generator (initial weights, dropout) from the same tuple."""
    return int(generator(seed, stream, round=round, client=client, task=task).integers(2**63))
