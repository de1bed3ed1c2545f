"""What goes over the wire, message by message: flat vectors and scalars, never a pickle.

    query.hello     -> nothing           <- who, processors, tasks with their numbers of points
    query.signals   -> models, jobs      <- a loss, a norm, a beta for each task
    train.multi     -> models, jobs      <- an update and buffers for each task, and a loss if asked for
    evaluate.multi  -> models, jobs      <- a loss and a score for each task

A message carries all tasks of a node. A job gives the numbers of its task and client, the round, the seed,
the settings of local training, the loss and the metric. A task that fails at the client has a reason in the
reply instead of a result.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fedmux.flower.objective import Objective
from fedmux.model import Model
from fedmux.privacy import Privacy
from fedmux.tasks.task import LocalSgd

HEADER = 1024  # bytes that a serialised array may have besides its data
LONGEST_ID, MOST_PROCESSORS, MOST_POINTS = 200, 10_000, 10**12  # a hello beyond these is refused
HELLO, EVALUATE = "query.hello", "evaluate.multi"
FORM = 3  # of the messages; 1 had no objective, 2 no loss with an update
LONGEST_REASON = 300  # characters


def vectors(**tensors: Tensor) -> ArrayRecord:
    return ArrayRecord(array_dict={name: Array(value.cpu().numpy()) for name, value in tensors.items()})


def tensor(record: ArrayRecord, name: str, like: Tensor | None = None) -> Tensor:
    """A received vector; ValueError if it is not `like` what was expected, before it is decoded."""
    array = record[name]
    if like is not None:
        wanted = str(like.dtype).removeprefix("torch.")
        if tuple(array.shape) != tuple(like.shape):
            raise ValueError(f"wrong shape {tuple(array.shape)}, not {tuple(like.shape)}")
        if array.dtype != wanted or len(array.data) > like.nbytes + HEADER:
            raise ValueError(f"wrong type {array.dtype}, not {wanted}")
    try:
        return torch.from_numpy(np.array(array.numpy()))
    except Exception as error:  # whatever the bytes make NumPy raise
        raise ValueError(f"cannot be decoded ({type(error).__name__})") from None


@dataclass(frozen=True)
class Hello:
    """Who a client is, and what it has."""

    client: str
    processors: int
    sizes: dict[str, int]  # points of each task

    def put(self, content: RecordDict) -> None:
        tasks, sizes = list(self.sizes), list(self.sizes.values())
        known = {"client": self.client, "processors": self.processors, "tasks": tasks, "sizes": sizes}
        known["form"] = FORM
        content["hello"] = ConfigRecord(known)  # type: ignore[arg-type]

    @classmethod
    def read(cls, content: RecordDict) -> "Hello":
        """ValueError if no sound client would send this."""
        record: dict[str, Any] = dict(content.config_records.get("hello") or {})
        client, processors = record.get("client"), record.get("processors")
        tasks, sizes = record.get("tasks"), record.get("sizes")
        if not isinstance(client, str) or not 0 < len(client) <= LONGEST_ID:
            raise ValueError("its id is not a short text")
        if not isinstance(processors, int) or not 0 <= processors <= MOST_PROCESSORS:
            raise ValueError(f"processors = {processors} is not a number from 0 to {MOST_PROCESSORS}")
        if not isinstance(tasks, list) or not isinstance(sizes, list) or len(tasks) != len(sizes):
            raise ValueError("tasks and sizes do not match")
        if not all(isinstance(size, int) and 0 <= size <= MOST_POINTS for size in sizes):
            raise ValueError(f"a number of points is not from 0 to {MOST_POINTS}")
        if record.get("form") != FORM:
            raise ValueError(f"client {client} has another version of fedmux; install the server's there")
        return cls(client, processors, dict(zip(map(str, tasks), sizes)))


def scalars(
    content: RecordDict, name: str, wanted: Sequence[str], welcome: Sequence[str] = ()
) -> dict[str, float] | None:
    """Numbers of a report; None if a wanted one is missing, or one is not a number."""
    record: dict[str, Any] = dict(content.metric_records.get(name) or {})
    values = {key: record.get(key) for key in (*wanted, *(key for key in welcome if key in record))}
    if not all(isinstance(value, int | float) for value in values.values()):
        return None
    return {key: float(value) for key, value in values.items() if value is not None}


@dataclass(frozen=True)
class Job:
    """One task's part of a message: the model, the client, what its draws depend on, how to train."""

    model: Model
    task: int
    client: int
    round: int
    seed: int
    learning_rate: float
    local: LocalSgd
    wants: frozenset[str]  # signals
    privacy: Privacy | None = None
    objective: Objective = field(default_factory=Objective)

    def put(self, content: RecordDict, name: str, model: ArrayRecord | None = None) -> None:
        """`model`: the model as a record, if one was made for another message."""
        content[f"model.{name}"] = model or vectors(
            parameters=self.model.parameters, buffers=self.model.buffers
        )
        local = {key: value for key, value in asdict(self.local).items() if value is not None}
        content[f"job.{name}"] = ConfigRecord(
            {
                "task": self.task,
                "client": self.client,
                "round": self.round,
                "seed": str(self.seed),  # up to 63 bits
                "learning_rate": self.learning_rate,
                "wants": sorted(self.wants),
                **local,
            }
        )
        self.objective.put(content, name)
        if self.privacy is not None:
            content[f"privacy.{name}"] = ConfigRecord(self.privacy.model_dump())

    @classmethod
    def read(cls, content: RecordDict, name: str) -> "Job":
        record: dict[str, Any] = dict(content.config_records[f"job.{name}"])
        arrays = content.array_records[f"model.{name}"]
        privacy = content.config_records.get(f"privacy.{name}")
        return cls(
            model=Model(tensor(arrays, "parameters"), tensor(arrays, "buffers")),
            task=record.pop("task"),
            client=record.pop("client"),
            round=record.pop("round"),
            seed=int(record.pop("seed")),
            learning_rate=record.pop("learning_rate"),
            wants=frozenset(record.pop("wants")),
            local=LocalSgd(**record),
            privacy=None if privacy is None else Privacy(**privacy),
            objective=Objective.read(content, name),
        )


def asked_tasks(content: RecordDict) -> list[str]:
    """Those for which a message has a job."""
    return [key.removeprefix("job.") for key in content.config_records if key.startswith("job.")]


def put_failure(content: RecordDict, name: str, reason: str) -> None:
    """Why a client has no result for a task."""
    content[f"failure.{name}"] = ConfigRecord({"reason": reason})


def read_failure(content: RecordDict, name: str) -> str | None:
    """One short line; None if the task has not failed."""
    record = content.config_records.get(f"failure.{name}")
    return None if record is None else in_short(record.get("reason"))


def in_short(reason: object) -> str:
    """The first line of what a client says."""
    lines = str(reason or "").strip().splitlines()
    return lines[0][:LONGEST_REASON] if lines else "unknown"


def refusal(update: Tensor, buffers: Tensor, model: Model, largest: float) -> tuple[str, str] | None:
    """Why an update is refused, as the kind of failure and the reason; None: it is not."""
    for given, own in ((update, model.parameters), (buffers, model.buffers)):
        if given.shape != own.shape:
            return "shape", f"wrong shape {tuple(given.shape)}, not {tuple(own.shape)}"
    if update.dtype != torch.float32 or buffers.dtype != torch.float64:
        return "shape", f"wrong type {update.dtype}, {buffers.dtype}"
    norm = float(torch.linalg.vector_norm(update.double()))
    if not math.isfinite(norm) or not bool(torch.isfinite(buffers).all()):
        return "not-finite", "not finite"
    return ("norm", f"norm {norm:.3g} above {largest:g}") if norm > largest else None
