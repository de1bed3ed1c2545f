"""When a task has diverged: the rules, and the state needed to set it back.

A task has diverged when

- its global model is not finite after a round, or its loss or score is not;
- its loss has risen by more than 10,000 times its value before training (or that of an all-zero model, if
  larger), or by more than 50 times in five consecutive rounds in which it was known. The loss is the median
  over the clients that report theirs, or that on a few validation points if no client does;
- more than half of its clients' reports, or of their updates, were rejected as not finite, round after round,
  until five different clients were affected, or more than half of those present.

Inverse-probability weights occasionally throw a sound model off: in the runs of papers/results losses rise to
580 times their start and recover, and never stay above 50 times for more than three consecutive rounds
(`python benchmarks/loss_spikes.py`).

Nothing here uses how good a task's results on the test points are, only whether they are finite.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmux.fleet import SIGNALS, TRAIN
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints
from fedmux.runs.rounds import Divergence

EXPLODED, TOO_LARGE = 10_000.0, 50.0  # times the loss before training
LASTING = 5  # consecutive rounds with too large a loss
MOST_REFUSED = 5  # different clients, over consecutive rounds with more rejected than sound
REFUSALS = ("not-finite", "norm")  # kinds of failures that hint at a bad model


class Watch:
    """Watches the S models of a run."""

    def __init__(self, models: list[Model]) -> None:
        tasks = len(models)
        self.start = np.full(tasks, np.nan)  # S: loss before training
        self.naive = np.zeros(tasks)  # S: loss of an all-zero model, for runs that start from good weights
        self.sound, self.sound_round = list(models), np.zeros(tasks, np.int64)
        # By phase and task: clients rejected since the last round in which most were sound.
        self.refused: dict[str, list[set[str]]] = {
            phase: [set() for _ in models] for phase in (SIGNALS, TRAIN)
        }
        self.large = np.zeros(tasks, np.int64)  # S: consecutive rounds with too large a loss
        self.looked = np.full(tasks, -1)  # S: the last round in which the loss was known
        self.retries = np.zeros(tasks, np.int64)
        self.paused: dict[int, Divergence] = {}

    @property
    def pausing(self) -> Bools:
        """S: whether a task is paused."""
        return np.isin(np.arange(len(self.sound)), list(self.paused))

    def unless_paused(self, old: list[Model], new: list[Model]) -> list[Model]:
        """The new models, except that paused tasks keep their old ones."""
        return [before if paused else after for paused, before, after in zip(self.pausing, old, new)]

    def broken(self, models: list[Model]) -> dict[int, str]:
        """Tasks whose models are not finite."""
        parts = [
            torch.stack([m.parameters.sum() for m in models]),
            torch.stack([m.buffers.sum() for m in models]),
        ]
        broken = ~np.isfinite(np.stack([part.cpu().numpy() for part in parts])).all(0)
        return self._found(np.atleast_1d(broken), "its model is not finite")

    def exploded(self, losses: Floats, round: int) -> dict[int, str]:
        """Tasks whose losses (S, NaN: unknown) after a round have exploded; the first known is the start."""
        fresh = np.isnan(self.start) & np.isfinite(losses)
        self.start[fresh] = losses[fresh]
        found = self._found(np.isposinf(losses), "its loss is not finite")
        size = np.maximum(np.abs(self.start), np.abs(self.naive))
        size = np.where(size == 0, np.inf, size)  # 0 gives no scale
        with np.errstate(invalid="ignore"):
            rise = np.where(np.isfinite(losses), (losses - self.start) / size, 0.0)
        large = rise > TOO_LARGE
        known = ~np.isnan(losses) & (round > self.looked)  # a model may be checked more than once
        self.large = np.where(known, np.where(large, self.large + 1, 0), self.large)
        self.looked = np.where(known, round, self.looked)
        for s in np.flatnonzero((rise > EXPLODED) | (large & (self.large >= LASTING))).tolist():
            if s not in self.paused:
                lasting = f", and too large for {LASTING} rounds" if rise[s] <= EXPLODED else ""
                found[s] = f"its loss is {losses[s]:.3g}, before training it was {self.start[s]:.3g}{lasting}"
        return found

    def refusals(self, phase: str, sound: Ints, refused: list[set[str]], there: Ints) -> dict[int, str]:
        """Tasks with too many non-finite answers, given the number of sound ones (S) and clients `refused`.

        `there` (S) is the number of clients that have each task now. A client is counted only once.
        """
        found = np.zeros(len(sound), bool)
        for s, clients in enumerate(refused):
            if len(clients) > sound[s]:
                self.refused[phase][s] |= clients
                count = len(self.refused[phase][s])
                found[s] = count >= MOST_REFUSED or 2 * count > there[s]
            elif sound[s] > 0:
                self.refused[phase][s] = set()
        what = "reports" if phase == SIGNALS else "updates"
        return self._found(found, f"most of its clients' {what} are not finite")

    def forget(self, s: int) -> None:
        """Clear the evidence against a task that has been set back."""
        self.large[s] = 0
        for refused in self.refused.values():
            refused[s] = set()

    def _found(self, tasks: Bools, reason: str) -> dict[int, str]:
        return dict.fromkeys(np.flatnonzero(tasks & ~self.pausing).tolist(), reason)

    def keep(self, models: list[Model], tasks: Bools, round: int) -> None:
        """Keep these tasks' models (S) as sound after a round, unless their losses are too large."""
        for s in np.flatnonzero(tasks & ~self.pausing & (self.large == 0)).tolist():
            self.sound[s], self.sound_round[s] = models[s], round

    def tensors(self, models: list[Model]) -> dict[str, Tensor]:
        """For a checkpoint: sound models that differ from the current ones."""
        return {
            f"{s}.{part}": getattr(sound, part).clone()  # one part may be shared with the current model
            for s, (sound, model) in enumerate(zip(self.sound, models))
            if sound is not model
            for part in ("parameters", "buffers")
        }

    def state(self) -> dict[str, Any]:
        """For a checkpoint, as JSON values."""
        return {
            "naive": self.naive.tolist(),
            "start": [None if np.isnan(value) else value for value in self.start.tolist()],
            "sound_round": self.sound_round.tolist(),
            "refused": {phase: [sorted(some) for some in refused] for phase, refused in self.refused.items()},
            "large": self.large.tolist(),
            "looked": self.looked.tolist(),
            "retries": self.retries.tolist(),
            "paused": {str(s): asdict(divergence) for s, divergence in self.paused.items()},
        }

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor], models: list[Model]) -> None:
        """`models` are the current ones; checkpoints of older versions have no such state."""
        self.sound = list(models)
        for s, like in enumerate(models):
            if f"{s}.parameters" in tensors:
                self.sound[s] = Model(
                    tensors[f"{s}.parameters"].to(like.parameters), tensors[f"{s}.buffers"].to(like.buffers)
                )
        if "naive" in state:
            self.naive = np.array(state["naive"])
            self.start = np.array([np.nan if value is None else value for value in state["start"]])
            self.sound_round = np.array(state["sound_round"], np.int64)
            self.refused = {
                phase: [set(some) for some in values] for phase, values in state["refused"].items()
            }
            self.large = np.array(state["large"], np.int64)
            self.looked = np.array(state["looked"], np.int64)
            self.retries = np.array(state["retries"], np.int64)
            self.paused = {int(s): Divergence(**fields) for s, fields in state["paused"].items()}
