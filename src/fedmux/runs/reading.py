"""Reads a run folder, finished or not."""

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.runs.layout import ALLOCATION, METRICS
from fedmux.runs.rounds import Round
from fedmux.toml import read_toml

if TYPE_CHECKING:
    from torch import Tensor


class Run:
    """Reads a run, finished or not."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.is_at(self.path):
            if (self.path / "lock").is_file():
                raise FedmuxError(f"{path}: stopped before it began; `fedmux run` with -o {path} begins it")
            raise FedmuxError(f"{path}: is not a run folder; `fedmux list` shows those there are")

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether a run has begun there; an experiment file alone is none."""
        return all((path / name).is_file() for name in ("experiment.toml", "environment.json"))

    @property
    def table(self) -> dict[str, Any]:
        """The resolved configuration."""
        return read_toml(self.path / "experiment.toml")

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").exists()

    @property
    def summary(self) -> dict[str, Any]:
        """Final figures; FedmuxError before the run is complete."""
        try:
            result: dict[str, Any] = json.loads((self.path / "summary.json").read_text())
        except FileNotFoundError:
            raise FedmuxError(
                f"{self.path}: not finished; `fedmux resume {self.path}` continues it"
            ) from None
        return result

    @property
    def metrics(self) -> list[Round]:
        """One entry for each round, the first before any training; a half-written last line is left out."""
        path = self.path / METRICS
        lines = path.read_bytes().splitlines() if path.exists() else []
        rounds = itertools.takewhile(lambda entry: entry is not None, map(Round.parse, lines))
        return list(rounds)  # type: ignore[arg-type]

    @property
    def allocation(self) -> np.ndarray:
        """Who trained what, with which probability and weight: a structured array of dtype ALLOCATION."""
        data = (self.path / "allocation.bin").read_bytes()
        return np.frombuffer(data[: len(data) // ALLOCATION.itemsize * ALLOCATION.itemsize], ALLOCATION)

    def model(self, task: str) -> "dict[str, Tensor]":
        """Final weights of a task."""
        from safetensors.torch import load_file

        return load_file(self.path / "models" / f"{task}.safetensors")
