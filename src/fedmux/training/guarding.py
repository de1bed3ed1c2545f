"""What happens to a task that has diverged: it goes back to its last sound model, and pauses or retries.

`divergence` has the rules; this applies them to a run. A task set back during a round sits out the rest
of that round.
"""

from collections.abc import Iterable

import numpy as np

from fedmux.allocation import Signals
from fedmux.errors import FedmuxError
from fedmux.experiment import Stop
from fedmux.fleet import SIGNALS, TRAIN
from fedmux.fleet.journal import Journal
from fedmux.population import Bools, Floats, Population
from fedmux.runs.rounds import Divergence
from fedmux.tasks.task import Task
from fedmux.training.deliveries import Deliveries
from fedmux.training.divergence import REFUSALS
from fedmux.training.state import State


class Safeguard:
    def __init__(self, stop: Stop, tasks: list[Task], journal: Journal) -> None:
        self.stop, self.tasks, self.journal = stop, tasks, journal
        self.found: list[Divergence] = []  # in this round

    def begin(self) -> None:
        """Start a new round."""
        self.found = []

    def heed(
        self, state: State, people: Population, asked: Bools, signals: Signals, scores: Floats | None
    ) -> Bools:
        """Reset the tasks shown to have diverged by what is known before the draw; returns which (S).

        A model that its losses do not show to have diverged is kept as sound.
        """
        watch, found = state.watch, dict[int, str]()
        if signals.losses is not None:
            losses = medians(signals.losses)
            found |= watch.exploded(losses, state.round)
            watch.keep(state.models, np.isfinite(losses) & ~_at(found, len(self.tasks)), state.round)
        answered = asked if signals.silent is None else asked & ~signals.silent
        there = people.available.sum(0)
        found |= watch.refusals(SIGNALS, answered.sum(0), self._refused(SIGNALS), there)
        if scores is not None:
            bad = np.flatnonzero(~np.isfinite(scores) & ~watch.pausing)
            found |= dict.fromkeys(bad.tolist(), "its score on the validation part is not finite")
        return self.set_back(state, found, state.round + 1)

    def judge(self, state: State, people: Population, deliveries: Deliveries) -> None:
        """Reset the tasks that a round's updates and new models show to have diverged."""
        sound, there = deliveries.sound(len(self.tasks)), people.available.sum(0)
        found = state.watch.refusals(TRAIN, sound, self._refused(TRAIN), there)
        self.set_back(state, found | state.watch.broken(state.models), state.round)

    def set_back(self, state: State, found: dict[int, str], round: int) -> Bools:
        """Reset the tasks found to have diverged, with the reason, in or after a round; returns which (S)."""
        stop, watch = self.stop, state.watch
        for s, reason in sorted(found.items()):
            task = self.tasks[s]
            paused = stop.divergence == "pause" or int(watch.retries[s]) >= stop.retries
            rate = task.learning_rate(round - 1)
            if not paused:
                watch.retries[s] += 1
            at, retries = int(watch.sound_round[s]), int(watch.retries[s])
            divergence = Divergence(task.name, round, reason, at, rate, retries, paused)
            if stop.divergence == "stop":
                raise FedmuxError(
                    f'task "{task.name}" diverged in round {round}: {reason}; lower learning_rate or set '
                    'clip, or let the others continue with [stop] divergence = "pause"'
                )
            self.found.append(divergence)
            state.models[s] = watch.sound[s]
            watch.forget(s)
            if paused:
                watch.paused[s] = divergence
            else:
                task.slow_down(retries)
            for half in (state.allocator, state.aggregator):
                half.forget(s)
        return _at(found, len(self.tasks))

    def _refused(self, phase: str) -> list[set[str]]:
        """By task: clients whose answers in a phase were rejected as not finite or far too large."""
        refused = [f for f in self.journal.failures if f.phase == phase and f.kind in REFUSALS]
        return [{f.client for f in refused if f.task == task.name} for task in self.tasks]


def medians(values: Floats) -> Floats:
    """S: medians over the clients (N x S) whose values are known; NaN without any."""
    return np.array(
        [
            np.median(column[~np.isnan(column)]) if not np.isnan(column).all() else np.nan
            for column in values.T
        ]
    )


def _at(tasks: Iterable[int], count: int) -> Bools:
    """S: true for the given tasks."""
    return np.isin(np.arange(count), list(tasks))
