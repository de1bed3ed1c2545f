"""What stale updates gain for the memory they take: accuracy, bytes, and how near what is kept comes.

    python benchmarks/stale_memory.py [--methods mmfl-forecast] [--rounds 60] [--seeds 3] [--ranks 4 8]

The quickstart's three models over 120 clients. Each method keeps whole vectors in float32 and bfloat16, then
combinations of a few shared ones, and last nothing. Prints the mean final accuracy over the seeds and its
standard error, the server's bytes, the part of the vectors' squared lengths (weighted by points) that was
kept, and the mean cosine between an update and what was kept of the client's last one.
"""

import argparse
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

import fedmux
from fedmux.aggregation.low_rank import LowRankStore
from fedmux.aggregation.store import ClientStore, Store
from fedmux.allocation.plan import RoundState
from fedmux.experiment.mistakes import validated
from fedmux.methods import Method, find
from fedmux.model import Model
from fedmux.population import Ints

QUICKSTART = Path(__file__).parent.parent / "examples" / "quickstart.toml"
WITHOUT: dict[str, Any] = {  # the method that keeps nothing
    "fedvarp": "random",
    "mmfl-forecast": {"name": "mmfl-forecast", "stale": False},
    "mmfl-lvr*": "mmfl-lvr",
    "mmfl-gvr*": "mmfl-gvr",
    "mmfl-stale": "mmfl-gvr",
    "mmfl-optimal-stale": "mmfl-gvr",
}
SETTLED = 10  # rounds before anything is noted

Notes = dict[str, list[float]]


class Watched(Store):
    """Put before a store, it keeps whole vectors too and notes how far the store's are from them."""

    notes: Notes

    def begin(self, state: RoundState, models: list[Model]) -> None:
        super().begin(state, models)
        if not hasattr(self, "whole"):
            self.whole = ClientStore("float32", "memory")
            self.whole.workspace = self.workspace
        self.whole.begin(state, models)
        self.settled = state.round >= SETTLED

    def put(self, task: int, clients: Ints, values: Tensor, sizes: Ints, before: Tensor) -> None:
        lengths = (before.norm(dim=1) * values.norm(dim=1)).numpy()
        seen = lengths > 0
        if self.settled:
            cosines = (before * values).sum(1).numpy()[seen] / lengths[seen]
            self.notes["cosine"].extend(cosines.tolist())
        super().put(task, clients, values, sizes, before)
        self.whole.put(task, clients, values, sizes, self.whole.get(task, clients))

    def end(self) -> None:
        super().end()
        for task in range(len(self.whole.rows)) if self.settled else ():
            clients = np.flatnonzero(self.whole.row[:, task] >= 0)
            whole, points = self.whole.get(task, clients), self.whole.counted[clients, task]
            lost = (whole - self.get(task, clients)).norm(dim=1).numpy() ** 2
            self.notes["kept"].append(1 - float(points @ lost / (points @ whole.norm(dim=1).numpy() ** 2)))


class WatchedWhole(Watched, ClientStore):
    pass


class WatchedLowRank(Watched, LowRankStore):
    pass


def watched(name: str, notes: Notes) -> type[Method]:
    """The method with a store that is watched."""

    def store(self: Any) -> Store:
        if self.rank is None:
            made: Watched = WatchedWhole(self.precision, self.storage)
        else:
            made = WatchedLowRank(self.rank, self.precision)
        made.notes = notes
        return made

    return type("WatchedMethod", (find(name),), {"store": store, "name": f"watched-{name}"})


def trained(method: Any, rounds: int, seed: int) -> dict[str, Any]:
    table = tomllib.loads(QUICKSTART.read_text())
    del table["compare"]
    table |= {"method": method, "rounds": rounds, "seed": seed, "output": {"checkpoint_every": rounds}}
    with tempfile.TemporaryDirectory() as folder:
        experiment = validated(fedmux.Experiment, table, "benchmark")
        return fedmux.run(experiment, Path(folder) / "run", notice=lambda line: None).summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=WITHOUT, default=["mmfl-forecast", "mmfl-lvr*"])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8, 16, 32])
    given = parser.parse_args()
    ways: dict[str, dict[str, Any] | None] = {"whole": {}, "whole, bfloat16": {"precision": "bfloat16"}}
    ways |= {f"rank {rank}": {"rank": rank} for rank in given.ranks}
    ways |= {"nothing": None}
    print("| method | kept | accuracy | server | kept of the squares | cosine |\n|---|---|---|---|---|---|")
    for name in given.methods:
        for way, options in ways.items():
            notes: Notes = {"kept": [], "cosine": []}
            method: Any = WITHOUT[name] if options is None else watched(name, notes)(**options)
            summaries = [trained(method, given.rounds, seed) for seed in range(given.seeds)]
            scores = np.array([100 * summary["accuracy"]["mean"] for summary in summaries])
            error = scores.std(ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else 0.0
            size = np.mean([summary["server_bytes"] for summary in summaries]) / 2**20
            near = [f"{np.mean(values):.2f}" if values else "-" for values in notes.values()]
            row = (name, way, f"{scores.mean():.1f} ± {error:.1f} %", f"{size:.1f} MiB", *near)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
