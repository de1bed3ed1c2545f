"""Optimal probabilities and their draw for a million clients x 5 tasks, the sort-free way beside the sort.

    python benchmarks/optimal_sampling.py [--clients 1000000] [--tasks 5]

Prints the best of three runs of each part, side by side, and the peak memory of the process.
"""

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np

from fedmux.allocation.optimal import _saturate_sorted, optimal_probabilities, saturate
from fedmux.allocation.plan import Probabilities


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=5)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    scores = rng.lognormal(0, 1.5, (arguments.clients, arguments.tasks))
    capacity = rng.integers(1, arguments.tasks + 1, arguments.clients)
    mass = scores.sum(1)
    total = int(capacity.sum())
    print(f"{arguments.clients:,} clients x {arguments.tasks} tasks, {total:,} processors")
    print("load   water-filling: passes, sort (ratio)    probabilities   draw      saturated")
    for load in (0.01, 0.1, 0.5, 0.9):
        jobs = load * total
        passes = best(lambda jobs=jobs: saturate(mass, capacity, jobs))
        sort = best(lambda jobs=jobs: _saturate_sorted(mass, capacity, jobs))
        whole = best(lambda jobs=jobs: optimal_probabilities(scores, capacity, jobs))
        p = optimal_probabilities(scores, capacity, jobs)
        plan = Probabilities(p, capacity)
        draw = best(lambda plan=plan: plan.draw(np.random.default_rng(1)))
        full = float((p.sum(1) > 1 - 1e-9).mean())
        print(
            f"{load:5.0%}  {1e3 * passes:8.0f} ms, {1e3 * sort:5.0f} ms ({sort / passes:.1f}x)"
            f"  {1e3 * whole:12.0f} ms  {1e3 * draw:6.0f} ms  {full:8.1%}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GiB")


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of three runs."""
    seconds = []
    for _ in range(3):
        clock = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - clock)
    return min(seconds)


if __name__ == "__main__":
    main()
