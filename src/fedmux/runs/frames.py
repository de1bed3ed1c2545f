"""A run folder, or a comparison's, as pandas frames, each built on first use."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmux.errors import FedmuxError
from fedmux.population import Population
from fedmux.runs.compared import cells, is_comparison, run_folder
from fedmux.runs.reading import Run, read_population
from fedmux.runs.rounds import Round, TaskRound
from fedmux.runs.scale import ACCURACY, over_tasks_of, scales_of

if TYPE_CHECKING:
    import pandas as pd


class Frames:
    """The results of runs, finished or not: `metrics`, `rounds`, `allocation`, `clients` as frames.

    Over a comparison every frame begins with the columns `method`, `seed` and `run`; `summary` and `table`
    are dictionaries by run. Of a damaged run they lack what cannot be read; a warning names the file.
    """

    def __init__(self, runs: Mapping[str, Run], labels: Mapping[str, tuple[str, int]] | None = None) -> None:
        self._runs, self._labels = runs, labels

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """A row for each round and task: accuracy (or score and progress), loss, jobs and other costs."""
        return self._over_runs(_metrics)

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """A row for each round: accuracy or progress over tasks, seconds in all and by phase, clients."""
        return self._over_runs(_rounds)

    @cached_property
    def allocation(self) -> "pd.DataFrame":
        """A row for each job that was drawn: round, client, task, count, probability, weight."""
        return self._over_runs(_allocation)

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """A row for each client and task: processors, points, whether it can train the task."""
        return self._over_runs(_clients)

    @property
    def summary(self) -> dict[str, Any]:
        """Final figures, empty before the end; of a comparison, by finished run."""
        finished = {name: run for name, run in self._runs.items() if run.finished}
        if self._labels is None:
            return next((run.summary for run in finished.values()), {})
        return self._each(finished, lambda run: run.summary)

    @property
    def table(self) -> dict[str, Any]:
        """The whole configuration; of a comparison by run."""
        if self._labels is None:
            return next(iter(self._runs.values())).table
        return self._each(self._runs, lambda run: run.table)

    def _each(self, runs: Mapping[str, Run], read: Callable[[Run], dict[str, Any]]) -> dict[str, Any]:
        found = {}
        for name, run in runs.items():
            try:
                found[name] = read(run)
            except FedmuxError as damage:
                _leave_out(damage)
        return found

    def _over_runs(self, make: "Callable[[Run], pd.DataFrame]") -> "pd.DataFrame":
        import pandas as pd

        if self._labels is None:
            return make(next(iter(self._runs.values())))
        parts = []
        for name, run in self._runs.items():
            method, seed = self._labels[name]
            try:
                part = make(run)
            except FedmuxError as damage:
                _leave_out(damage)
                continue
            part.insert(0, "method", method)
            part.insert(1, "seed", seed)
            part.insert(2, "run", name)
            parts.append(part)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def load(folder: str | Path) -> Frames:
    """The frames of a run folder or of a comparison's; skips runs that have not started."""
    path = Path(folder)
    if not is_comparison(path):
        return Frames({path.name: Run(path)})
    begun = [cell for cell in cells(path) if Run.is_at(run_folder(path, cell.name))]
    if not begun:
        raise FedmuxError(f"{path}: none of its runs has started; `fedmux resume {path}` starts them")
    return Frames(
        {cell.name: Run(run_folder(path, cell.name)) for cell in begun},
        {cell.name: (cell.label, cell.seed) for cell in begun},
    )


def _leave_out(damage: FedmuxError) -> None:
    warnings.warn(f"left out: {damage}", stacklevel=2)


def _tasks(run: Run) -> list[str]:
    return [task["name"] for task in run.table["task"]]


def _measure(run: Run) -> str:
    return over_tasks_of(scales_of(run.table).values())


def _unlike(values: TaskRound, metric: str) -> dict[str, Any]:
    """A task's figures beside those of tasks with other metrics."""
    line = values.line()
    line.pop("accuracy", None)
    return {**line, "metric": metric, "score": values.score, "progress": values.progress}


def _over_tasks(entry: Round, measure: str) -> dict[str, float | None]:
    """None of a run from before unlike metrics were told apart."""
    return asdict(entry.progress) if entry.progress and entry.measure == measure else {}


def _metrics(run: Run) -> "pd.DataFrame":
    import pandas as pd

    plain, scales = _measure(run) == ACCURACY, scales_of(run.table)
    rows = [
        {
            "round": entry.round,
            "task": name,
            **_flat(values.line() if plain else _unlike(values, scales[name].name)),
        }
        for entry in run.metrics
        for name, values in entry.tasks.items()
    ]
    first = ["accuracy"] if plain else ["metric", "score", "progress"]
    return pd.DataFrame(rows, columns=_columns(rows, ["round", "task", *first, "loss"]))


def _rounds(run: Run) -> "pd.DataFrame":
    import pandas as pd

    rows, measure = [], _measure(run)
    for entry in run.metrics:
        line = entry.line()
        over = {f"{key}_{measure}": value for key, value in _over_tasks(entry, measure).items()}
        phases = {f"{key}_seconds": value for key, value in entry.phases.items()}
        counts = {key: value for key, value in line.items() if isinstance(value, int | float)}
        if entry.failures:
            counts["failures"] = len(entry.failures)
        rows.append({**counts, **over, **phases})
    over_tasks = (f"{key}_{measure}" for key in ("mean", "minimum", "variance", "cosine"))
    first = ["round", *over_tasks, "seconds"]
    return pd.DataFrame(rows, columns=_columns(rows, first))


def _allocation(run: Run) -> "pd.DataFrame":
    import pandas as pd

    jobs = run.allocation
    whole = {name: jobs[name].astype(np.int64) for name in ("round", "client", "task", "count")}
    whole["task"] = np.array(_tasks(run), object)[jobs["task"]]
    return pd.DataFrame({**whole, "probability": jobs["probability"], "weight": jobs["weight"]})


def _clients(run: Run) -> "pd.DataFrame":
    import pandas as pd

    arrays = read_population(run.path)
    people = Population(arrays["capacity"], arrays["sizes"], arrays["eligible"])
    shape = people.sizes.shape
    return pd.DataFrame(
        {
            "client": np.repeat(np.arange(shape[0]), shape[1]),
            "task": np.tile(np.array(_tasks(run), object), shape[0]),
            "processors": np.repeat(people.capacity, shape[1]),
            "points": people.sizes.ravel(),
            "available": people.available.ravel(),
        }
    )


def _columns(rows: list[dict[str, Any]], first: list[str]) -> list[str]:
    """The first ones always, then all others in order of appearance."""
    return list(dict.fromkeys([*first, *(key for row in rows for key in row)]))


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """`clients: {mean: ...}` as `clients_mean`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= {f"{key}_{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return flat
