"""Whether this machine can take a run: its processes are counted and weighed before one is started."""

import pickle
import sys
from collections.abc import Iterator

from fedmux.data.footprint import footprint
from fedmux.distributed.limits import PROCESS, check_memory, check_number
from fedmux.distributed.team import from_environment
from fedmux.distributed.workers import count
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.experiment.metric import MetricChoice
from fedmux.importing import first_line, name_of
from fedmux.settings import Checked

PAIR = 64  # bytes for each client and task: sizes, eligibility, shares, probabilities


def need(experiment: Experiment) -> int:
    """Bytes of one process, about: its data, its clients, and what any process takes."""
    sources = {
        task.data if isinstance(task.data, str) else id(task.data): task.data for task in experiment.tasks
    }
    data = sum(footprint(source) for source in sources.values())
    return PROCESS + data + PAIR * experiment.population.clients * len(experiment.tasks)


def check(experiment: Experiment) -> None:
    """FedmuxError if the processes are too many, too large, or cannot be sent the experiment."""
    if from_environment():  # whoever started torchrun has decided
        return
    processes, asked = count(experiment.execution), experiment.execution.workers
    if processes == 1:
        check_memory("this run", 1, need(experiment) - PROCESS)  # it has been started already
        return
    key = f"execution.workers = {asked}" if asked != "auto" else 'execution.workers = "auto"'
    check_number(key, processes)
    check_memory(key, processes, need(experiment))
    for place, thing in _own_objects(experiment):
        if reason := _obstacle(thing):
            raise FedmuxError(
                f"{place} cannot be sent to other processes ({reason}), which {key} needs; define it at the "
                "top level of a module, or set workers = 1"
            )


def _own_objects(experiment: Experiment) -> Iterator[tuple[str, object]]:
    """What was given in Python and stands for a name."""
    for task in experiment.tasks:
        for key in type(task).model_fields:
            thing = getattr(task, key)
            thing = thing.name if isinstance(thing, MetricChoice) else thing
            if callable(thing) and not isinstance(thing, Checked):
                yield f'task "{task.name}": {key} "{name_of(thing)}"', thing
    yield f'method "{name_of(type(experiment.method))}"', type(experiment.method)


def _obstacle(thing: object) -> str | None:
    module = getattr(thing, "__module__", None)
    if module == "__main__" and not hasattr(sys.modules[module], "__file__"):
        return "it was typed in"
    try:
        pickle.dumps(thing)
    except Exception as error:  # pickle raises what the thing's own code raises
        return first_line(error)
    return None
