"""One million clients x 5 tasks: plan, draw, check, learn from and record rounds, without local training.

    OMP_NUM_THREADS=1 python benchmarks/million_clients.py [--methods random,mmfl-lvr] [--jobs 12,1000,100000]
        [--options draws=dependent-rounding] [--clients 1000000] [--tasks 5] [--rounds 3]

Losses and norms that a method asks for are drawn at random, and so are those that it learns from. Each method
has a process of its own. Printed are the seconds of CPU time of every round, which other work on the machine
disturbs less than those on the clock, and the peak memory of the process.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from fedmux.allocation.contract import check_draw, planned
from fedmux.allocation.lessons import Lessons
from fedmux.allocation.plan import Allocator, Assignment, Budget, RoundState, Signals
from fedmux.methods import find
from fedmux.population import Bools, Floats, Population, draw_availability, draw_capacity
from fedmux.randomness import Stream, generator
from fedmux.runs.layout import ALLOCATION
from fedmux.runs.rounds import Round
from fedmux.runs.writing import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--jobs", default="12,1000,100000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", default="random,mmfl-lvr")
    parser.add_argument("--options", default="", help="KEY=VALUE,..., for methods that have the option")
    arguments = parser.parse_args()
    for name in arguments.methods.split(","):
        child = get_context("spawn").Process(target=measure, args=(name, arguments))
        child.start()
        child.join()


def measure(name: str, arguments: argparse.Namespace) -> None:
    """Print a method's figures."""
    method = find(name)
    options = dict(option.split("=") for option in arguments.options.split(",") if option)
    chosen = {key: number_or_word(text) for key, text in options.items() if key in method.model_fields}
    imports, clock = peak(), time.process_time()
    people = population(arguments.clients, arguments.tasks)
    title = " ".join([name, *map(str, chosen.values())])
    print(
        f"{title}: {arguments.clients:,} clients x {arguments.tasks} tasks, "
        f"V = {people.total_processors:,}; population {time.process_time() - clock:.2f} s"
    )
    rounds, tasks = arguments.rounds, [{"name": f"task {s}"} for s in range(arguments.tasks)]
    table = {"name": "million", "seed": 0, "rounds": rounds, "method": name, "task": tasks}
    with tempfile.TemporaryDirectory() as folder:
        record = RunFolder.create(Path(folder) / "run", table)
        record.open_logs({})
        for jobs in map(float, arguments.jobs.split(",")):
            allocator = method(**chosen).allocator()
            for number in range(rounds):
                state = round_state(allocator, people, jobs, number, rounds)
                print(f"  {jobs:9,.0f} jobs, round {number + 1}: {play(allocator, state, record)}")
        record.close()
    print(f"  peak memory {peak() / 2**30:.2f} GiB (imports alone {imports / 2**30:.2f} GiB)", flush=True)


def number_or_word(text: str) -> float | str:
    return float(text) if text[0].isdigit() else text


def population(clients: int, tasks: int) -> Population:
    has = draw_availability(
        {"all": 0.9, "all_but_one": 0.1}, clients, tasks, generator(0, Stream.AVAILABILITY)
    )
    capacity = draw_capacity({"all": 0.25, "half": 0.5, "one": 0.25}, has, generator(0, Stream.CAPACITY))
    sizes = generator(0, Stream.PARTITION).integers(9, 151, (clients, tasks))
    return Population(capacity, np.where(has, sizes, 0), has)


def round_state(
    allocator: Allocator, people: Population, jobs: float, number: int, rounds: int
) -> RoundState:
    """A round with whatever signals the allocator asks for; its population is new, as after a change."""
    people = Population(people.capacity, people.sizes, people.eligible)
    ones = np.ones(people.tasks)
    state = RoundState(number, rounds, 0, people, Budget(jobs=jobs), ones, ones, accuracies=0.5 * ones)
    if not allocator.needs:
        return state
    reports = signals(allocator, allocator.reporters(state), number)
    return RoundState(number, rounds, 0, people, Budget(jobs=jobs), ones, ones, reports, state.accuracies)


def signals(allocator: Allocator, asked: Bools, number: int) -> Signals:
    """What the clients that are asked report, if it were as random as this."""
    rng = np.random.default_rng(number)

    def reported(wanted: bool) -> Floats | None:
        return np.where(asked, rng.gamma(2.0, 1.0, asked.shape), np.nan) if wanted else None

    vectors = bool(allocator.needs & {"norm", "residual", "projection"})
    return Signals(
        reported("loss" in allocator.needs), reported(vectors), reported("projection" in allocator.needs)
    )


def play(allocator: Allocator, state: RoundState, record: RunFolder) -> str:
    """Seconds of each part of a round, in words."""
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(part: str) -> Iterator[None]:
        start = time.process_time()
        yield
        seconds[part] = time.process_time() - start

    with timed("plan"):
        plan = planned(allocator, state)
    with timed("draw"):
        drawn = plan.draw(state.rng(Stream.DRAW))
    with timed("check"):
        check_draw(plan, drawn, state, type(allocator).__name__)
    if allocator.learns:
        seen = lessons(state, drawn)
        with timed("learn"):
            allocator.learn(state, seen)
    with timed("record"):
        record.append(Round(state.round + 1), jobs_of(drawn, state))
    return f"{', '.join(f'{part} {took:.3f}' for part, took in seconds.items())} s; {len(drawn):,} updates"


def lessons(state: RoundState, drawn: Assignment) -> Lessons:
    """What the updates of those that were drawn could have shown."""
    rng = np.random.default_rng(1000 + state.round)
    losses, norms, cosines, kept = rng.uniform(0.1, 1.0, (4, len(drawn)))
    moved = np.ones(state.population.tasks)
    return Lessons(drawn.client, drawn.task, losses, norms, cosines, kept, norms, moved)


def jobs_of(drawn: Assignment, state: RoundState) -> np.ndarray:
    """The record of the round's jobs."""
    jobs = np.zeros(len(drawn), ALLOCATION)
    jobs["round"] = state.round + 1
    jobs["weight"] = drawn.count * state.population.shares[drawn.client, drawn.task] / drawn.expected
    for name in ("client", "task", "count", "probability"):
        jobs[name] = getattr(drawn, name)
    return jobs


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
