"""When a task has diverged: the rules, and what is kept so that it can be set back.

A task has diverged when

- its global model is not finite after a round, or its loss or score is not;
- its loss has risen by more than 10,000 times what it was before training, or what it is for a model of zeros
  if that is more, or by more than 50 times in five rounds in a row that were looked at: the median over the
  clients that report theirs, or the loss on a few points of the validation part where no client does;
- more than half of its clients' reports, or of their updates, were refused as not finite, round after round,
  until five different clients were, or more than half of those there are.

Inverse-probability weights now and then throw a sound model off: in the runs of papers/results losses rise to
580 times their start and recover, and never stay above 50 times for more than three rounds in a row
(`python benchmarks/loss_spikes.py`).

Nothing here looks at how good a task is on the reported points, only at whether its figures are numbers.
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
LASTING = 5  # rounds in a row with a loss that is too large
MOST_REFUSED = 5  # different clients, in rounds of which each had more refused than sound
REFUSALS = ("not-finite", "norm")  # kinds of failures that say something of the model


class Watch:
    """Over the S models of a run."""

    def __init__(self, models: list[Model]) -> None:
        tasks = len(models)
        self.start = np.full(tasks, np.nan)  # S: loss before training
        self.naive = np.zeros(tasks)  # S: loss of a model that is all zeros, for starts that are good already
        self.sound, self.sound_round = list(models), np.zeros(tasks, np.int64)
        # Of each phase and task: the clients refused since the last round in which most was sound.
        self.refused: dict[str, list[set[str]]] = {
            phase: [set() for _ in models] for phase in (SIGNALS, TRAIN)
        }
        self.large = np.zeros(tasks, np.int64)  # S: rounds in a row in which the loss was too large
        self.looked = np.full(tasks, -1)  # S: the last round in which it was known
        self.retries = np.zeros(tasks, np.int64)
        self.paused: dict[int, Divergence] = {}

    @property
    def pausing(self) -> Bools:
        """S."""
        return np.isin(np.arange(len(self.sound)), list(self.paused))

    def unless_paused(self, old: list[Model], new: list[Model]) -> list[Model]:
        """The new models, but for tasks that are paused: those stay as they are."""
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
        """Tasks whose losses (S, NaN: unknown) after a round have exploded; the start is the first known."""
        fresh = np.isnan(self.start) & np.isfinite(losses)
        self.start[fresh] = losses[fresh]
        found = self._found(np.isposinf(losses), "its loss is not finite")
        size = np.maximum(np.abs(self.start), np.abs(self.naive))
        size = np.where(size == 0, np.inf, size)  # 0 says nothing
        with np.errstate(invalid="ignore"):
            rise = np.where(np.isfinite(losses), (losses - self.start) / size, 0.0)
        large = rise > TOO_LARGE
        known = ~np.isnan(losses) & (round > self.looked)  # the same model is looked at more than once
        self.large = np.where(known, np.where(large, self.large + 1, 0), self.large)
        self.looked = np.where(known, round, self.looked)
        for s in np.flatnonzero((rise > EXPLODED) | (large & (self.large >= LASTING))).tolist():
            if s not in self.paused:
                lasting = f", and too large for {LASTING} rounds" if rise[s] <= EXPLODED else ""
                found[s] = f"its loss is {losses[s]:.3g}, before training it was {self.start[s]:.3g}{lasting}"
        return found

    def refusals(self, phase: str, sound: Ints, refused: list[set[str]], there: Ints) -> dict[int, str]:
        """Tasks of whose clients too many sent what is not finite: so many were sound (S), these refused.

        `there` (S) says how many clients have a task now. One client is counted once, however often it comes.
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
        """What speaks against a task that has been set back."""
        self.large[s] = 0
        for refused in self.refused.values():
            refused[s] = set()

    def _found(self, tasks: Bools, reason: str) -> dict[int, str]:
        return dict.fromkeys(np.flatnonzero(tasks & ~self.pausing).tolist(), reason)

    def keep(self, models: list[Model], tasks: Bools, round: int) -> None:
        """These models (of the tasks given, S) are sound after a round, unless their losses are too large."""
        for s in np.flatnonzero(tasks & ~self.pausing & (self.large == 0)).tolist():
            self.sound[s], self.sound_round[s] = models[s], round

    def tensors(self, models: list[Model]) -> dict[str, Tensor]:
        """Of a checkpoint: sound models that are not the present ones."""
        return {
            f"{s}.{part}": getattr(sound, part).clone()  # one part may be the present model's own
            for s, (sound, model) in enumerate(zip(self.sound, models))
            if sound is not model
            for part in ("parameters", "buffers")
        }

    def state(self) -> dict[str, Any]:
        """Of a checkpoint, as JSON values."""
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
        """`models` are the present ones; a checkpoint of an older version has no such state."""
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
