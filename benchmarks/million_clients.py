"""One million clients x 5 tasks: build, allocate, draw and record three rounds, without local training.

    python benchmarks/million_clients.py [--clients 1000000] [--tasks 5] [--rate 0.1]

Prints seconds for each part and the peak memory of the process.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from fedmux.allocation.plan import Budget, RoundState, check
from fedmux.methods import find
from fedmux.population import Population, draw_availability, draw_capacity
from fedmux.randomness import Stream, generator
from fedmux.runs.layout import ALLOCATION
from fedmux.runs.writing import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--method", default="random")
    arguments = parser.parse_args()
    clients, tasks = arguments.clients, arguments.tasks

    start = peak()
    clock = time.perf_counter()
    has = draw_availability(
        {"all": 0.9, "all_but_one": 0.1}, clients, tasks, generator(0, Stream.AVAILABILITY)
    )
    capacity = draw_capacity({"all": 0.25, "half": 0.5, "one": 0.25}, has, generator(0, Stream.CAPACITY))
    sizes = generator(0, Stream.PARTITION).integers(9, 151, (clients, tasks))
    people = Population(capacity, np.where(has, sizes, 0), has)
    print(
        f"population of {clients:,} x {tasks}: {time.perf_counter() - clock:.2f} s, "
        f"V = {people.total_processors:,}"
    )

    allocator = find(arguments.method)().allocator()
    with tempfile.TemporaryDirectory() as folder:
        record = RunFolder.create(Path(folder) / "run", {"name": "million"})
        record.open_logs({})
        for number in range(3):
            state = RoundState(
                number, 3, 0, people, Budget(rate=arguments.rate), np.ones(tasks), np.ones(tasks)
            )
            clock = time.perf_counter()
            plan = allocator.plan(state)
            planned = time.perf_counter()
            assignment = plan.draw(state.rng())
            drawn = time.perf_counter()
            check(plan, assignment, people)
            jobs = np.zeros(len(assignment), ALLOCATION)
            jobs["round"] = number + 1
            jobs["weight"] = (
                assignment.count * people.shares[assignment.client, assignment.task] / assignment.expected
            )
            for name in ("client", "task", "count", "probability"):
                jobs[name] = getattr(assignment, name)
            record.append({"round": number + 1, "jobs": int(assignment.count.sum())}, jobs)
            print(
                f"round {number + 1}: plan {planned - clock:.2f} s, draw {drawn - planned:.2f} s, "
                f"check and record {time.perf_counter() - drawn:.2f} s, {len(assignment):,} jobs"
            )
    print(f"peak memory {peak() / 2**30:.2f} GiB (imports alone {start / 2**30:.2f} GiB)")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
