"""A C-step of mmfl-group over many clients: clustering from a sample beside comparing everybody.

    python benchmarks/clustering.py [--tasks 5] [--clients 4000 8000 24000 100000] [--exact 8000]

Losses of overlapping clusters. Prints seconds, the number of groups and the silhouette; up to `--exact`
clients also those of K-means and the silhouette over all of them, and how far the two groupings agree.
"""

import argparse
import time

import numpy as np
from sklearn.metrics import adjusted_rand_score

from fedmux.allocation import groups
from fedmux.population import Floats
from fedmux.randomness import Stream, generator


def losses(clients: int, tasks: int) -> Floats:
    """As many true clusters as tasks and two more, half of the spread between clusters, half within."""
    rng = generator(0, Stream.CLUSTER, client=clients)
    centres = rng.gamma(4.0, 0.5, (tasks + 2, tasks))
    return centres[rng.integers(len(centres), size=clients)] + rng.normal(0.0, 0.5, (clients, tasks))


def timed(points: Floats, tasks: int, compared: int) -> tuple[groups.Grouping, float]:
    groups.MOST_COMPARED = compared
    clock = time.perf_counter()
    found = groups.cluster(points, tasks, seed=1)
    return found, time.perf_counter() - clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="+", default=[4000, 8000, 24_000, 100_000])
    parser.add_argument("--exact", type=int, default=8000)
    arguments = parser.parse_args()
    limit = groups.MOST_COMPARED
    timed(losses(500, arguments.tasks), arguments.tasks, limit)  # imports
    print(f"{arguments.tasks} tasks; compared: at most {limit:,} clients, or everybody")
    print(" clients  compared  seconds  groups  silhouette")
    for clients in arguments.clients:
        points = losses(clients, arguments.tasks)
        found, seconds = timed(points, arguments.tasks, limit)
        _tell(clients, min(limit, clients), seconds, found)
        if limit < clients <= arguments.exact:
            whole, seconds = timed(points, arguments.tasks, clients)
            _tell(clients, clients, seconds, whole)
            index = adjusted_rand_score(whole.label, found.label)
            print(f"{'':8}  the two agree with an adjusted Rand index of {index:.3f}")


def _tell(clients: int, compared: int, seconds: float, found: groups.Grouping) -> None:
    number, score = len(np.unique(found.label)), found.silhouette
    print(f"{clients:>8,}  {compared:>8,}  {seconds:>7.1f}  {number:>6}  {score:>10.3f}")


if __name__ == "__main__":
    main()
