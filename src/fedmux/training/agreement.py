"""The processes of a run hold the same models: an aggregator's own sum that is not added up parts them."""

import numpy as np

from fedmux.distributed.team import Team, TeamLost
from fedmux.model import Model
from fedmux.tasks.task import Task


def same_everywhere(models: list[Model], team: Team, tasks: list[Task], aggregator: str) -> None:
    """TeamLost unless every process came to the same models, to the bit: all start from the same sums."""
    if team.size == 1:
        return
    unlike = team.unlike(np.array([model.checksum() for model in models]))
    for task in np.flatnonzero(unlike.any(0)).tolist():
        others = np.flatnonzero(unlike[:, task]).tolist()
        raise TeamLost(
            f'processes {others} came to another model of task "{tasks[task].name}" than process 0; '
            f"{aggregator}.summed must name every array that {aggregator} adds up while updates arrive, and "
            "all processes need the same versions and kind of processor"
        )
