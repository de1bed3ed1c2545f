"""Writes a run folder, one process at a time; see `layout` for what is in it."""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import tomli_w
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedmux.errors import FedmuxError
from fedmux.runs.atomic import is_temporary, write_atomically
from fedmux.runs.environment import environment
from fedmux.runs.layout import (
    CHECKPOINTS,
    CLIENTS,
    ENVIRONMENT,
    EXPERIMENT,
    JOBS,
    LOCK,
    METRICS,
    MODELS,
    SUMMARY,
)
from fedmux.runs.pulse import Pulse
from fedmux.runs.reading import Run, check_log
from fedmux.runs.rounds import Round
from fedmux.runs.state import continues, is_finished


@dataclass(frozen=True)
class Checkpoint:
    """A run after `rounds` rounds: tensors by name and a JSON value."""

    rounds: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


PROBES = 5  # readers take the lock for a moment; after so many tries somebody works on the run


# What exists before a run starts; a folder with nothing else can be used again.
BEFOREHAND = (LOCK, CHECKPOINTS, ENVIRONMENT, CLIENTS)


class RunFolder:
    """Writes a run. One process at a time holds it; as a context, it records how the work ends."""

    def __init__(self, path: Path, again: str | None = None) -> None:
        """`again` is a command that continues the run, where that is not `fedmux resume`."""
        self.path = path
        self._pulse = Pulse(path, again)
        self._logs: dict[str, IO[bytes]] = {}

    @classmethod
    def create(cls, path: Path, table: dict[str, Any], again: str | None = None) -> "RunFolder":
        """A new run folder; refuses one that already holds something."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            _refuse_what_is_filled(path)
            folder = cls(path, again)
            folder.lock()
            try:
                _refuse_what_is_filled(path)  # another process may have filled it meanwhile
                (path / CHECKPOINTS).mkdir(exist_ok=True)
                write_atomically(path / ENVIRONMENT, json.dumps(environment(), indent=1).encode())
                write_atomically(path / EXPERIMENT, tomli_w.dumps(table).encode())
            except BaseException:
                folder.close()
                raise
        except OSError as error:
            raise FedmuxError(f"{path}: cannot be written ({error.strerror})") from None
        return folder

    def __enter__(self) -> "RunFolder":
        """What has the run locked begins to work on it."""
        self._pulse.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pulse.stop(error, is_finished(self.path))
        self.close()

    def lock(self) -> None:
        """Held until `close` or the end of the process; removes what a killed process left behind."""
        self._lock = (self.path / LOCK).open("w")
        for left in reversed(range(PROBES)):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    raise FedmuxError(
                        f"{self.path}: another process is working on this run; wait for it"
                    ) from None
                time.sleep(0.02)
        for folder in (self.path, self.path / CHECKPOINTS, self.path / MODELS):
            for leftover in filter(is_temporary, folder.glob(".*")):
                leftover.unlink()

    def close(self) -> None:
        """Release the run, so that another process can resume it."""
        for log in self._logs.values():
            with contextlib.suppress(OSError):  # a full disk has been reported already
                log.close()
        self._lock.close()

    def open_logs(self, lengths: dict[str, int]) -> None:
        """Open both logs for appending, cut back to what a checkpoint knows (nothing, at the start)."""
        self._experiment = self._fingerprint()
        for name in (METRICS, JOBS):
            path = self.path / name
            path.touch()
            os.truncate(path, lengths.get(name, 0))
            self._logs[name] = path.open("ab")

    def append(self, entry: Round, allocation: np.ndarray | None = None) -> None:
        try:
            line = json.dumps(entry.line(), allow_nan=False)  # JSON has no NaN
        except ValueError:
            raise FedmuxError(_not_finite(entry)) from None
        self._logs[METRICS].write(f"{line}\n".encode())
        if allocation is not None:
            self._logs[JOBS].write(allocation.tobytes())
        for log in self._logs.values():
            log.flush()

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint atomically; keep the last two. The logs reach the disk before it does."""
        self._sync_logs()
        lengths = {name: log.tell() for name, log in self._logs.items()}
        state = json.dumps(
            {
                "rounds": checkpoint.rounds,
                "logs": lengths,
                "experiment": self._experiment,
                "state": checkpoint.state,
            }
        )
        tensors = {name: tensor.cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
        data = save(tensors, {"fedmux": state, "digest": _digest(tensors, state)})
        path = self.path / CHECKPOINTS / f"round-{checkpoint.rounds:06d}.safetensors"
        path.parent.mkdir(exist_ok=True)  # gone where a run was complete, and its summary is taken away
        write_atomically(path, data)
        present = self.checkpoints()
        newest = present.index(path)  # those of later rounds are damaged, or this one would not be written
        for old in present[:newest] + present[newest + 2 :]:
            old.unlink()

    def checkpoints(self) -> list[Path]:
        """Newest first."""
        return sorted((self.path / CHECKPOINTS).glob("round-*.safetensors"), reverse=True)

    def latest(self) -> tuple[Checkpoint | None, dict[str, int], list[str]]:
        """The newest sound checkpoint (None: start afresh), the logs' lengths then, and what is damaged."""
        damaged: list[str] = []
        for path in self.checkpoints():
            try:
                checkpoint, lengths, experiment = _read_checkpoint(path)
                self._check_logs(lengths)
            except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
                damaged.append(f"{path.name} cannot be used ({str(error) or type(error).__name__})")
                continue
            if experiment != self._fingerprint():
                file = self.path / EXPERIMENT
                raise FedmuxError(
                    f"{file}: was changed after the run had begun; undo the change, or train it from the "
                    f"start with `fedmux run {file} -o` and another folder"
                )
            return checkpoint, lengths, damaged
        return None, {}, damaged

    def _check_logs(self, lengths: dict[str, int]) -> None:
        for name, length in lengths.items():
            path = self.path / name
            if not path.exists() or path.stat().st_size < length:
                raise ValueError(f"{name} is shorter than it was then")
            if problem := check_log(path, length):
                raise ValueError(problem)

    def _fingerprint(self) -> str:
        """Of the experiment as a table; comments and layout do not count."""
        table = json.dumps(Run(self.path).table, sort_keys=True, default=str)
        return hashlib.blake2b(table.encode(), digest_size=16).hexdigest()

    def finish(self, models: dict[str, dict[str, Tensor]], summary: dict[str, Any]) -> None:
        """Write the final models, then the summary, which says that all is done; checkpoints then go."""
        self._sync_logs()
        (self.path / MODELS).mkdir(exist_ok=True)
        for name, weights in models.items():
            data = save({key: value.contiguous() for key, value in weights.items()})
            write_atomically(self.path / MODELS / f"{name}.safetensors", data)
        self._pulse.finished()
        write_atomically(self.path / SUMMARY, json.dumps(summary, indent=1).encode())
        shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)

    def _sync_logs(self) -> None:
        for log in self._logs.values():
            os.fsync(log.fileno())


def _not_finite(entry: Round) -> str:
    """The message for a round whose figures are not finite."""
    for task, figures in entry.tasks.items():
        for key, value in figures.line().items():
            if isinstance(value, float) and not math.isfinite(value):
                return (
                    f'task "{task}": the {key} after round {entry.round} is not finite; '
                    "lower learning_rate or set clip"
                )
    return f"a figure of round {entry.round} is not finite"


def _digest(tensors: dict[str, Tensor], state: str) -> str:
    digest = hashlib.blake2b(state.encode(), digest_size=16)
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _refuse_what_is_filled(path: Path) -> None:
    if any(item.name not in BEFOREHAND and not is_temporary(item) for item in path.iterdir()):
        begun = (path / EXPERIMENT).exists() and not is_finished(path)
        hint = f"{continues(path)}, or " if begun else ""
        raise FedmuxError(f"{path}: the folder exists and is not empty; {hint}choose another with -o")


def _read_checkpoint(path: Path) -> tuple[Checkpoint, dict[str, int], str]:
    """A checkpoint, the logs' lengths at its time, and the fingerprint of its experiment."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _digest(tensors, metadata["fedmux"]) != metadata["digest"]:
        raise ValueError("its digest differs")
    state = json.loads(metadata["fedmux"])
    return Checkpoint(state["rounds"], tensors, state["state"]), state["logs"], state["experiment"]
