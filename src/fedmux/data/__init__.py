"""Data sets: where they come from, and how they are divided among clients."""

from fedmux.data.arrays import from_arrays
from fedmux.data.dataset import Dataset
from fedmux.data.sources import load

__all__ = ["Dataset", "from_arrays", "load"]
