"""A run is a directory: configuration, versions, metrics, allocation history, checkpoints, final models.

    experiment.toml      the resolved configuration; `fedmux run` takes it again
    environment.json     versions and hardware
    population.npz       processors, data sizes and eligibility of every client, true clusters
    metrics.jsonl        one line for each round
    allocation.bin       one record for each job (dtype ALLOCATION)
    checkpoints/         round-000012.safetensors: models and state; the last two, none once it is complete
    models/              final weights of each task
    summary.json         final figures; its presence says that the run is complete
    clients.json         only with real clients: the number of each client's own id
    releases.npy         only with real clients: updates that each was asked for, of each task
    log.jsonl            only with real clients: what happened when

Both logs only grow, and a checkpoint says how long they were: resuming cuts them there.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import tomli_w
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedmux.environment import environment
from fedmux.errors import FedmuxError

ALLOCATION = np.dtype(
    [
        ("round", "<u4"),
        ("client", "<u4"),
        ("task", "<u2"),
        ("count", "<u2"),
        ("probability", "<f4"),
        ("weight", "<f4"),
    ]
)


CLIENTS, POPULATION, RELEASES = "clients.json", "population.npz", "releases.npy"


@dataclass(frozen=True)
class Checkpoint:
    """A run after `rounds` rounds: tensors by name and a JSON value."""

    rounds: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


# What there is before a run has begun: a folder with nothing else may be begun in again.
BEFOREHAND = ("lock", "checkpoints", "environment.json", CLIENTS)


class RunFolder:
    """Writes a run. One process at a time holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._logs: dict[str, IO[bytes]] = {}

    @classmethod
    def create(cls, path: Path, table: dict[str, Any]) -> "RunFolder":
        """A new run folder; refuses one that already holds something."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            _refuse_what_is_filled(path)
            folder = cls(path)
            folder.lock()
            try:
                _refuse_what_is_filled(path)  # another process may have filled it meanwhile
                (path / "checkpoints").mkdir(exist_ok=True)
                write_atomically(path / "environment.json", json.dumps(environment(), indent=1).encode())
                write_atomically(path / "experiment.toml", tomli_w.dumps(table).encode())
            except BaseException:
                folder.close()
                raise
        except OSError as error:
            raise FedmuxError(f"{path}: cannot be written ({error.strerror})") from None
        return folder

    def lock(self) -> None:
        """Held until `close` or until the process ends, however it ends; sweeps up what a killed one left."""
        self._lock = (self.path / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FedmuxError(f"{self.path}: another process is working on this run; wait for it") from None
        for folder in (self.path, self.path / "checkpoints", self.path / "models"):
            for leftover in filter(_is_temporary, folder.glob(".*")):
                leftover.unlink()

    def close(self) -> None:
        """Let go of the run, so that it can be resumed by whoever comes next."""
        for log in self._logs.values():
            with contextlib.suppress(OSError):  # a full disk has been told already
                log.close()
        self._lock.close()

    def open_logs(self, lengths: dict[str, int]) -> None:
        """Open both logs for appending, cut back to what a checkpoint knows (nothing, at the start)."""
        self._experiment = self._fingerprint()
        for name in ("metrics.jsonl", "allocation.bin"):
            path = self.path / name
            path.touch()
            os.truncate(path, lengths.get(name, 0))
            self._logs[name] = path.open("ab")

    def append(self, metrics: dict[str, Any], allocation: np.ndarray | None = None) -> None:
        try:
            line = json.dumps(metrics, allow_nan=False)  # JSON has no NaN
        except ValueError:
            raise FedmuxError(_not_finite(metrics)) from None
        self._logs["metrics.jsonl"].write(f"{line}\n".encode())
        if allocation is not None:
            self._logs["allocation.bin"].write(allocation.tobytes())
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
        path = self.path / "checkpoints" / f"round-{checkpoint.rounds:06d}.safetensors"
        path.parent.mkdir(exist_ok=True)  # gone where a run was complete, and its summary is taken away
        write_atomically(path, data)
        present = self.checkpoints()
        newest = present.index(path)  # those of later rounds are damaged, or this one would not be written
        for old in present[:newest] + present[newest + 2 :]:
            old.unlink()

    def checkpoints(self) -> list[Path]:
        """Newest first."""
        return sorted((self.path / "checkpoints").glob("round-*.safetensors"), reverse=True)

    def latest(self) -> tuple[Checkpoint | None, dict[str, int], list[str]]:
        """The newest sound checkpoint (None: start afresh), the logs' lengths then, and what is damaged."""
        damaged: list[str] = []
        for path in self.checkpoints():
            try:
                checkpoint, lengths, experiment = _read_checkpoint(path)
                self._check_lengths(lengths)
            except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
                damaged.append(f"{path.name} cannot be used ({str(error) or type(error).__name__})")
                continue
            if experiment != self._fingerprint():
                file = self.path / "experiment.toml"
                raise FedmuxError(
                    f"{file}: was changed after the run had begun; undo the change, or train it from the "
                    f"start with `fedmux run {file} -o` and another folder"
                )
            return checkpoint, lengths, damaged
        return None, {}, damaged

    def _check_lengths(self, lengths: dict[str, int]) -> None:
        for name, length in lengths.items():
            path = self.path / name
            if not path.exists() or path.stat().st_size < length:
                raise ValueError(f"{name} is shorter than it was then")

    def _fingerprint(self) -> str:
        """Of the experiment as a table; comments and layout do not count."""
        table = json.dumps(Run(self.path).table, sort_keys=True, default=str)
        return hashlib.blake2b(table.encode(), digest_size=16).hexdigest()

    def finish(self, models: dict[str, dict[str, Tensor]], summary: dict[str, Any]) -> None:
        """Write the final models, then the summary, which says that all is done; checkpoints then go."""
        self._sync_logs()
        (self.path / "models").mkdir(exist_ok=True)
        for name, weights in models.items():
            data = save({key: value.contiguous() for key, value in weights.items()})
            write_atomically(self.path / "models" / f"{name}.safetensors", data)
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=1).encode())
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def _sync_logs(self) -> None:
        for log in self._logs.values():
            os.fsync(log.fileno())


class Run:
    """Reads a run, finished or not."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.is_at(self.path):
            if (self.path / "lock").is_file():
                raise FedmuxError(f"{path}: stopped before it began; `fedmux run` with -o {path} begins it")
            raise FedmuxError(f"{path}: is not a run folder; `fedmux list` shows those there are")

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether a run has begun there; an experiment file alone is none."""
        return all((path / name).is_file() for name in ("experiment.toml", "environment.json"))

    @property
    def table(self) -> dict[str, Any]:
        """The resolved configuration."""
        from fedmux.problems import read_toml

        return read_toml(self.path / "experiment.toml")

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").exists()

    @property
    def summary(self) -> dict[str, Any]:
        """Final figures; FedmuxError before the run is complete."""
        try:
            result: dict[str, Any] = json.loads((self.path / "summary.json").read_text())
        except FileNotFoundError:
            raise FedmuxError(
                f"{self.path}: not finished; `fedmux resume {self.path}` continues it"
            ) from None
        return result

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each round, the first before any training; a half-written last line is left out."""
        return list(self._lines())

    def _lines(self) -> Iterator[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                return

    @property
    def allocation(self) -> np.ndarray:
        """Who trained what, with which probability and weight: a structured array of dtype ALLOCATION."""
        data = (self.path / "allocation.bin").read_bytes()
        return np.frombuffer(data[: len(data) // ALLOCATION.itemsize * ALLOCATION.itemsize], ALLOCATION)

    def model(self, task: str) -> dict[str, Tensor]:
        """Final weights of a task."""
        from safetensors.torch import load_file

        return load_file(self.path / "models" / f"{task}.safetensors")


def _is_temporary(path: Path) -> bool:
    return re.fullmatch(r"\..+\.\d+\.tmp", path.name) is not None


def write_atomically(path: Path, data: bytes) -> None:
    """Either the whole file is there or the old one is: a temporary file, flushed, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _not_finite(metrics: dict[str, Any]) -> str:
    """What to say of a round's figures that are no numbers any more."""
    for task, values in metrics["tasks"].items():
        for key, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                return (
                    f'task "{task}": the {key} after round {metrics["round"]} is not finite; '
                    "lower learning_rate or set clip"
                )
    return f"a figure of round {metrics['round']} is not finite"


def _digest(tensors: dict[str, Tensor], state: str) -> str:
    digest = hashlib.blake2b(state.encode(), digest_size=16)
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _refuse_what_is_filled(path: Path) -> None:
    if any(item.name not in BEFOREHAND and not _is_temporary(item) for item in path.iterdir()):
        hint = "`fedmux resume` continues it, or " if (path / "experiment.toml").exists() else ""
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
