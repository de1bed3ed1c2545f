"""What a client's score tells: how norms of updates (MMFL-GVR) follow its data and its loss (MMFL-LVR).

    python benchmarks/scores.py --rounds 40 --every 10

Trains preset `table1-3tasks` under `mmfl-gvr` and, in some rounds, fits norm ~ n^a loss^b over the clients
of a task. Beside it: which part of all scores is that of clients with much data, under GVR and as LVR has it.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np

import fedmux
from fedmux.allocation import Allocator
from fedmux.allocation.plan import RoundState, Signals
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.experiment.mistakes import validated
from fedmux.experiment.overrides import put
from fedmux.methods.variance_reduced import Gvr
from fedmux.population import Floats
from fedmux.reproduce.preset import find

MUCH = 50  # points; those with little have 9 to 15, the others 90 to 150


class Watched(VarianceReduced):
    """GVR, which also asks for losses."""

    def __init__(self, every: int) -> None:
        super().__init__("norm", ScoreOptions())
        self.needs, self.every = frozenset({"norm", "loss"}), every

    def score(self, state: RoundState, signals: Signals) -> Floats:
        if state.round % self.every == 0:
            print(json.dumps({"round": state.round, **told(state, signals)}), flush=True)
        return super().score(state, signals)


class WatchedGvr(Gvr):
    name: ClassVar[str] = "watched-gvr"
    every: int = 10

    def allocator(self) -> Allocator:
        return Watched(self.every)


def told(state: RoundState, signals: Signals) -> dict[str, list[float]]:
    """One figure a task."""
    found: dict[str, list[float]] = {"power of n": [], "power of loss": [], "much data, GVR": [], "LVR": []}
    for task, there in enumerate(state.population.available.T):
        points = state.population.sizes[there, task].astype(float)
        norm, loss = signals.norms[there, task], np.abs(signals.losses[there, task])
        columns = np.stack([np.log(points), np.log(loss), np.ones_like(loss)], axis=1)
        (a, b, _), *_ = np.linalg.lstsq(columns, np.log(norm), rcond=None)
        shares = [float((points * of)[points > MUCH].sum() / (points * of).sum()) for of in (norm, loss)]
        for values, value in zip(found.values(), (float(a), float(b), *shares)):
            values.append(round(value, 2))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], help="key=value, such as task.model=cnn-small")
    given = parser.parse_args()
    table = find("table1-3tasks").table()
    table |= {"rounds": given.rounds, "seed": given.seed}
    table["method"] = {"name": "scores:WatchedGvr", "every": given.every}
    for change in ("evaluation.every=1000", "execution.workers=1", *given.set):
        put(table, change)
    with tempfile.TemporaryDirectory() as folder:
        fedmux.run(validated(fedmux.Experiment, table, "benchmark"), Path(folder) / "run")


if __name__ == "__main__":
    main()
