"""A run from start to end: start it, resume it, interrupt it without losing anything."""

import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmux.distributed.team import Team, TeamLost, from_environment
from fedmux.distributed.workers import joined
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.importing import only_in_python
from fedmux.runs.layout import CLIENTS
from fedmux.runs.places import folder_for
from fedmux.runs.reading import Run, read_table
from fedmux.runs.scale import scales_of
from fedmux.runs.state import continues
from fedmux.runs.writing import RunFolder
from fedmux.training import limits
from fedmux.training.assembly import assemble
from fedmux.training.blame import blamed
from fedmux.training.setting import Setting
from fedmux.training.training import Observer, Training


def run(
    experiment: Experiment,
    folder: str | Path | None = None,
    *,
    observers: Sequence[Observer] = (),
    notice: Callable[[str], None] = print,
) -> Run:
    """Train an experiment from its first round. Returns the finished run; its folder holds everything.

    Under torchrun every process calls this; the first one returns, the others exit here.
    """
    if not isinstance(experiment, Experiment):
        raise FedmuxError(
            f"run takes a fedmux.Experiment, got {type(experiment).__name__}; read a file with "
            "fedmux.Experiment.read(path)"
        )
    limits.check(experiment)
    with joined(experiment.execution, partial(follow, experiment)) as team:
        if from_environment():
            what = {k: v for k, v in experiment.table().items() if k not in ("execution", "output")}
            table = json.dumps(what, sort_keys=True).encode()
            team.agree("experiment", np.frombuffer(table, np.uint8))
        if team.rank:
            follow(experiment, team)
            raise SystemExit
        setting = assemble(experiment)
        output = folder_for(experiment.name, folder, experiment.output.folder)
        record = RunFolder.create(output, experiment.table())
        return _train(experiment, setting, record, observers, notice, team)


def resume(
    folder: str | Path,
    *,
    experiment: Experiment | None = None,
    execution: Mapping[str, Any] | None = None,
    observers: Sequence[Observer] = (),
    notice: Callable[[str], None] = print,
) -> Run:
    """Continue a run from its newest sound checkpoint; ends bit-identical to the uninterrupted run.

    An experiment whose data was passed as arrays cannot be read back from the folder: pass it again. With
    `execution`, such as {"workers": 2}, it resumes on other hardware or with other settings; the results are
    then equal up to rounding.
    """
    if from_environment():
        return _resume_together(Path(folder), experiment, execution or {}, observers, notice)
    if (Path(folder) / CLIENTS).exists():
        raise FedmuxError(f"{folder}: is a run of real clients; {continues(Path(folder))}")
    known = to_resume(Path(folder), experiment, execution or {})
    if known is None:
        return Run(folder)
    limits.check(known)
    with joined(known.execution, partial(follow, known)) as team:
        return _go_on(known, Path(folder), observers, notice, team)


def to_resume(folder: Path, experiment: Experiment | None, execution: Mapping[str, Any]) -> Experiment | None:
    """The experiment of an unfinished run; None if the run is finished."""
    existing = Run(folder)
    if existing.finished:
        return None
    known = read_table(folder)  # what is wrong with its keys is told below
    experiment = experiment or validated(Experiment, known, str(folder / "experiment.toml"))
    if experiment.scales != scales_of(known):
        raise FedmuxError(
            f"{folder}: its tasks are not scored by the experiment's metrics, and a run keeps its own; use "
            "another -o for a new run"
        )
    if not _holds(experiment.table(), known):
        raise FedmuxError(f"{folder}: was started with a different experiment; use another -o for a new run")
    return experiment.executed(execution)


def _holds(table: Any, part: Any) -> bool:
    """Whether a table contains another; it may have extra keys, from newer versions."""
    if isinstance(table, dict) and isinstance(part, dict):
        return all(key in table and _holds(table[key], value) for key, value in part.items())
    if isinstance(table, list) and isinstance(part, list):
        return len(table) == len(part) and all(map(_holds, table, part))
    return bool(table == part) or _was_in_python(table, part)


def _was_in_python(given: Any, known: Any) -> bool:
    """Whether something that had no name when the run began, `<Net>`, can be imported now, as `nets:Net`."""
    told = isinstance(known, str) and isinstance(given, str) and only_in_python(known)
    return told and given.partition(":")[2] == known[1:-1]


def _go_on(
    experiment: Experiment,
    folder: Path,
    observers: Sequence[Observer],
    notice: Callable[[str], None],
    team: Team,
) -> Run:
    setting = assemble(experiment)
    record = RunFolder(folder)
    record.lock()
    return _train(experiment, setting, record, observers, notice, team)


def _resume_together(
    folder: Path,
    experiment: Experiment | None,
    execution: Mapping[str, Any],
    observers: Sequence[Observer],
    notice: Callable[[str], None],
) -> Run:
    """Under torchrun: only the first machine needs the folder; it sends the others the experiment."""
    with joined(None, lambda team: None) as team:
        if team.rank:
            _, table = team.share({}, {})
            if table:  # empty if there is nothing to do
                follow(experiment or validated(Experiment, table, "the first process's run"), team)
            raise SystemExit
        known = None
        try:
            known = to_resume(folder, experiment, execution)
        finally:
            team.share({}, known.table() if known else {})
        return _go_on(known, folder, observers, notice, team) if known else Run(folder)


def follow(experiment: Experiment, team: Team) -> None:
    """What every process but the first does: the same rounds, without a record."""
    torch.set_num_threads(1)
    with _interruptible() as interrupted:
        training = Training(experiment, assemble(experiment), None, (), team)
        try:
            training.start(lambda line: None)
            training.loop(interrupted)
        finally:
            shutil.rmtree(training.scratch, ignore_errors=True)


def _train(
    experiment: Experiment,
    setting: Setting,
    record: RunFolder,
    observers: Sequence[Observer],
    notice: Callable[[str], None],
    team: Team,
) -> Run:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # reproducible; and several OpenMP threads are very slow on a busy machine
    with record:
        try:
            with _interruptible() as interrupted, blamed(record.path):
                training = Training(experiment, setting, record, observers, team)
                training.start(notice)
                training.loop(interrupted)
        except TeamLost as lost:
            raise FedmuxError(
                f"{lost}; nothing before the last checkpoint is lost: `fedmux resume {record.path}`"
            ) from lost
        except OSError as error:
            raise FedmuxError(
                f"{record.path}: cannot be written ({error.strerror}); nothing before the last "
                f"checkpoint is lost: free some space, then `fedmux resume {record.path}`"
            ) from None
        finally:
            torch.set_num_threads(threads)
    return Run(record.path)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C (or SIGTERM) lets the round finish; a second one stops at once. Outside the main thread signals
    cannot be caught: an interrupted run is then left at its last checkpoint."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
