"""FairVR's probabilities and targets at several sizes and loads, and auctions among a million users.

    python benchmarks/fair_probabilities.py [--users 1000000] [--repeats 5]

Prints the median time of each. To stay under: 10 ms for 120 clients, 1 s for 100,000 at a load of 10 %, 2 s
for an auction.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedmux.allocation import fair_probabilities, feasible_targets
from fedmux.randomness import Stream, generator
from fedmux.recruitment import MECHANISMS

TASKS, MANY_TASKS = 5, 24
LOADS = (0.01, 0.1, 0.5, 0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    print(f"fair_probabilities, {TASKS} tasks: median ms of {arguments.repeats} by load")
    print("clients  " + "".join(f"{load:>10.0%}" for load in LOADS))
    for clients in (120, 10_000, 100_000):
        times = [solved(clients, load, arguments.repeats) for load in LOADS]
        print(f"{clients:>7,}  " + "".join(f"{1000 * seconds:>10.1f}" for seconds in times))

    print(f"\nfeasible_targets, {MANY_TASKS} tasks (by max-flow), some of them scarce: median ms")
    for clients in (120, 10_000, 100_000):
        times = [lowered(clients, load, arguments.repeats) for load in (*LOADS, 1.0)]
        print(f"{clients:>7,}  " + "".join(f"{1000 * seconds:>10.1f}" for seconds in times))

    bids = generator(0, Stream.BIDS).random((arguments.users, TASKS))
    budget = 0.05 * arguments.users
    print(f"\nauctions, {arguments.users:,} users x {TASKS} tasks, budget {budget:,.0f}: median s")
    for name, mechanism in MECHANISMS.items():
        amount = 0.3 if name == "posted-price" else budget

        def hold(mechanism: Any = mechanism, amount: float = amount) -> object:
            return mechanism(bids, amount, generator(0, Stream.RECRUITMENT))

        print(f"{name:<26}{timed(hold, min(arguments.repeats, 3)):6.2f}")


def solved(clients: int, load: float, repeats: int) -> float:
    """Scores as LVR has them: a tenth of the clients with ten times the data, some pairs missing."""
    rng = generator(0, Stream.PARTITION, task=clients)
    scores = rng.lognormal(0.0, 0.5, (clients, TASKS)) * rng.choice(
        [1.0, 10.0], (clients, TASKS), p=[0.9, 0.1]
    )
    capacity = rng.integers(1, TASKS + 1, clients)
    available = rng.random((clients, TASKS)) < 0.9
    weights = rng.dirichlet(np.full(TASKS, 3.0))
    targets = feasible_targets(weights, load * float(capacity.sum()), capacity, available)
    return timed(lambda: fair_probabilities(scores, capacity, targets, available=available), repeats)


def lowered(clients: int, load: float, repeats: int) -> float:
    """Half of the pairs at most, few of some tasks; uneven weights. The last column is a load of 100 %."""
    rng = generator(0, Stream.PARTITION, task=clients, client=1)
    available = rng.random((clients, MANY_TASKS)) < np.linspace(0.005, 0.5, MANY_TASKS)
    available[np.arange(MANY_TASKS), np.arange(MANY_TASKS)] = True
    capacity = rng.integers(1, TASKS + 1, clients)
    weights = rng.dirichlet(np.full(MANY_TASKS, 3.0))
    jobs = load * float(capacity.sum())
    return timed(lambda: feasible_targets(weights, jobs, capacity, available), repeats)


def timed(work: Callable[[], object], repeats: int) -> float:
    """Median seconds."""
    times = []
    for _ in range(repeats):
        clock = time.perf_counter()
        work()
        times.append(time.perf_counter() - clock)
    return statistics.median(times)


if __name__ == "__main__":
    main()
