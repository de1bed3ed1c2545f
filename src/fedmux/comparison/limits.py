"""Whether a comparison is meant to be as large as it is, and whether this machine can take it.

Checked before anything is written.
"""

from collections.abc import Callable, Sequence

from fedmux.comparison.design import Design
from fedmux.distributed.limits import available, check_memory, check_number
from fedmux.distributed.workers import cores, count
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.training import limits
from fedmux.training.limits import need

MANY = 1000  # runs that nobody should start by accident
START = 5  # seconds until a run's first round
Agreed = Callable[[str], bool]  # asks the user


def check(designs: Sequence[Design], parallel: int, agreed: Agreed = lambda question: True) -> None:
    """FedmuxError if the runs are too many at a time, or so many in all that the user does not agree."""
    for design in designs:
        _check_parallel(design, parallel)
    runs = sum(design.size for design in designs)
    if runs <= MANY:
        return
    rounds = int(designs[0].table["rounds"])
    together = parallel or cores()
    hours = runs * (START + rounds) / together / 3600
    told = (
        f"{designs[0].source}: {runs:,} runs of {rounds:,} rounds, about {hours:,.0f} hours at one second a "
        f"round and {together} at a time"
    )
    if not agreed(told):
        raise FedmuxError(f"{told}; start them with --yes, or take fewer methods, seeds or values")


def _check_parallel(design: Design, parallel: int) -> None:
    """`parallel` as the user asked for it: 0 is as many as fit."""
    experiment = validated(Experiment, design.table, design.source)
    limits.check(experiment)
    if not parallel:
        return
    processes = parallel * count(experiment.execution)
    check_number(f"--parallel {parallel}", processes)
    check_memory(f"--parallel {parallel}", processes, need(experiment))


def fitting(experiment: Experiment, parallel: int) -> int:
    """As many of so many runs at a time as there is memory for, at least one."""
    free = available()
    each = need(experiment) * count(experiment.execution)
    return parallel if free is None else max(1, min(parallel, free // each))
