"""Trackers: observers that write what a run measures for TensorBoard, MLflow, CSV or Weights & Biases.

Each writes into the run's own folder, steps are rounds, and nothing leaves the machine. The run folder is
the source: a tracker that is opened first writes the rounds of `metrics.jsonl` that it does not have yet. So
a run that was killed and resumed, or that had no tracker before, has every round once.
"""

import csv
import importlib.util
import io
import json
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from fedmux.errors import FedmuxError
from fedmux.runs.atomic import write_atomically
from fedmux.runs.reading import Run

LAST = "seconds"  # of every round, and written last: a round that has it is all there


class Tracker(ABC):
    """Observes one run. It opens itself at the first round it sees; `close` or leaving `with` ends it."""

    name: ClassVar[str]
    package: ClassVar[str | None] = None  # that the tracker needs; the pip extra has the tracker's name

    def __init__(self, run: str | Path) -> None:
        if self.package and importlib.util.find_spec(self.package) is None:
            raise FedmuxError(
                f'tracker "{self.name}" needs {self.package}: pip install "fedmux[{self.name}]"'
            )
        self.run = Path(run)
        self.last: int | None = None  # round that is logged; None before it is open

    @abstractmethod
    def open(self, folder: Path, table: dict[str, Any], name: str) -> int:
        """Begin or go on in the run's folder; the last round that is there already, or -1."""

    @abstractmethod
    def log(self, round: int, values: dict[str, float]) -> None:
        """One round's figures."""

    @abstractmethod
    def end(self, summary: dict[str, Any] | None) -> None:
        """Write what a finished run ended with (None: it is not finished) and let go of the files."""

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        last = self._catch_up() if self.last is None else self.last
        if metrics["round"] > last:
            self._log(metrics)

    def close(self) -> None:
        """Also writes a run that was over before the tracker saw it."""
        if self.last is None:
            self._catch_up()
        run = Run(self.run)
        self.last = None
        self.end(run.summary if run.finished else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        began = self.last is not None  # if not, the run may have been refused: the folder is another's
        if began or kind is None:
            self.close()

    def _catch_up(self) -> int:
        run = Run(self.run)
        self.last = self.open(run.path, run.table, run.path.resolve().name)
        for entry in run.metrics:
            if entry["round"] > self.last:
                self._log(entry)
        return self.last

    def _log(self, metrics: Mapping[str, Any]) -> None:
        self.last = int(metrics["round"])
        self.log(self.last, figures(metrics))


def figures(metrics: Mapping[str, Any]) -> dict[str, float]:
    """A round's metrics as single numbers by name, `seconds` last; without lists; failures are counted."""
    tree = {"accuracy": metrics.get("accuracy", {}), "task": metrics["tasks"]}
    tree |= {key: value for key, value in metrics.items() if key not in ("round", "tasks", LAST, *tree)}
    if "failures" in tree:
        tree["failures"] = len(metrics["failures"])
    return {**dict(_numbers(tree)), LAST: float(metrics[LAST])}


def _numbers(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", value


def parameters(table: Mapping[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    """A configuration as single values: `population.clients`, `task.digits.learning_rate`."""
    flat: dict[str, str | int | float | bool] = {}
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            value = {str(item.get("name", number)): item for number, item in enumerate(value)}
        if isinstance(value, Mapping):
            flat |= parameters(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value if isinstance(value, str | int | float) else json.dumps(value)
    return flat


def final(summary: Mapping[str, Any]) -> dict[str, float]:
    """What a run ended with as single numbers, `final/accuracy/mean` and so on."""
    return dict(_numbers({"final": {**summary, "task": summary["tasks"], "tasks": {}}}))


class CSV(Tracker):
    """`csv/metrics.csv`, a line for each round; `parameters.csv` and `summary.csv`, a line for each value."""

    name = "csv"

    def open(self, folder: Path, table: dict[str, Any], name: str) -> int:
        self.folder = folder / "csv"
        self.folder.mkdir(exist_ok=True)
        self._pairs("parameters", parameters(table))
        self.path = self.folder / "metrics.csv"
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a line may be half there
        rows = list(csv.reader(io.StringIO(whole)))
        self.columns = rows[0] if rows else ["round", LAST]
        write_atomically(self.path, (whole or f"round,{LAST}\n").encode())
        self.file = self.path.open("a", newline="")
        return int(rows[-1][0]) if len(rows) > 1 else -1

    def log(self, round: int, values: dict[str, float]) -> None:
        if new := [key for key in values if key not in self.columns]:
            self._widen(new)
        writer = csv.DictWriter(self.file, self.columns, lineterminator="\n")
        writer.writerow({"round": round, **values})
        self.file.flush()

    def _widen(self, new: list[str]) -> None:
        """Some figures come only with a later round: the lines before it have none."""
        self.file.close()
        rows = list(csv.DictReader(io.StringIO(self.path.read_text())))
        self.columns += new
        wider = io.StringIO()
        writer = csv.DictWriter(wider, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.path, wider.getvalue().encode())
        self.file = self.path.open("a", newline="")

    def end(self, summary: dict[str, Any] | None) -> None:
        self.file.close()
        if summary is not None:
            self._pairs("summary", parameters(summary))

    def _pairs(self, name: str, values: Mapping[str, object]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("key", "value"), *values.items()])
        write_atomically(self.folder / f"{name}.csv", text.getvalue().encode())


class TensorBoard(Tracker):
    """`tensorboard/`: scalars over rounds, the configuration as hyper-parameters."""

    name = "tensorboard"
    package = "tensorboard"

    def open(self, folder: Path, table: dict[str, Any], name: str) -> int:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import FileWriter
        from torch.utils.tensorboard.summary import hparams

        path = folder / "tensorboard"
        path.mkdir(exist_ok=True)
        before = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
        tags = before.Tags()["scalars"]
        last = before.Scalars(LAST)[-1].step if LAST in tags else -1
        self.ended = "final/rounds" in tags
        while any(path.glob(f"*.{int(time.time())}.*")):  # readers go by the second in the name
            time.sleep(0.02)
        self.writer: Any = FileWriter(str(path))
        begin, session, self.session_end = hparams(parameters(table), {"accuracy/mean": 0.0})
        if last < 0:
            self.writer.add_summary(begin)
            self.writer.add_summary(session)
        self.flushed = 0.0
        return int(last)

    def log(self, round: int, values: dict[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self.writer.add_summary(Summary(value=scalars), round)  # one record: a round is there or is not
        if time.monotonic() - self.flushed > 1:  # so that it can be watched
            self.writer.flush()
            self.flushed = time.monotonic()

    def end(self, summary: dict[str, Any] | None) -> None:
        if summary is not None and not self.ended:
            self.log(summary["rounds"], final(summary))
            self.writer.add_summary(self.session_end)
        self.writer.close()


class MLflow(Tracker):
    """`mlruns/`: MLflow's file store, with one run in it. No server, no telemetry."""

    name = "mlflow"
    package = "mlflow"

    def open(self, folder: Path, table: dict[str, Any], name: str) -> int:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow would rather have a database
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client = MlflowClient((folder / "mlruns").resolve().as_uri())
        known = self.client.get_experiment_by_name(table["name"])
        experiment = known.experiment_id if known else self.client.create_experiment(table["name"])
        runs = self.client.search_runs([experiment])
        self.id = (runs[0] if runs else self.client.create_run(experiment, run_name=name)).info.run_id
        given = [Param(key, str(value)) for key, value in parameters(table).items()]
        self.client.log_batch(self.id, params=given)
        self.client.update_run(self.id, status="RUNNING")
        steps = {key: self._last(key) for key in (runs[0].data.metrics if runs else {})}
        last = steps.get(LAST, -1)
        self.half = {key for key, step in steps.items() if step > last}  # of the round that was being written
        self.ended = "final/rounds" in steps
        return last

    def _last(self, key: str) -> int:
        return max(int(metric.step) for metric in self.client.get_metric_history(self.id, key))

    def log(self, round: int, values: dict[str, float]) -> None:
        self._write({key: value for key, value in values.items() if key not in self.half}, round)
        self.half = set()

    def _write(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self.client.log_batch(self.id, metrics=[Metric(key, v, now, step) for key, v in values.items()])

    def end(self, summary: dict[str, Any] | None) -> None:
        if summary is not None and not self.ended:
            self._write(final(summary), summary["rounds"])
        self.client.set_terminated(self.id, "KILLED" if summary is None else "FINISHED")


class WandB(Tracker):
    """`wandb/`: an offline run of Weights & Biases, a folder for each part of it; `wandb sync` uploads."""

    name = "wandb"
    package = "wandb"

    def open(self, folder: Path, table: dict[str, Any], name: str) -> int:
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self.state = folder / "wandb" / "fedmux.json"
        self.state.parent.mkdir(exist_ok=True)
        fresh: dict[str, Any] = {"id": secrets.token_hex(4), "last": -1, "ended": False}
        self.known = json.loads(self.state.read_text()) if self.state.exists() else fresh
        quiet = wandb.Settings(console="off", disable_git=True, save_code=False, x_disable_stats=True)
        self.writer = wandb.init(
            project=table["name"],
            name=name,
            id=self.known["id"],
            dir=str(folder),
            config=parameters(table),
            mode="offline",
            settings=quiet,
        )
        return int(self.known["last"])

    def log(self, round: int, values: dict[str, float]) -> None:
        self.writer.log(values, step=round)
        self._keep(last=round)

    def _keep(self, **changes: object) -> None:
        self.known |= changes
        temporary = self.state.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.known))
        temporary.replace(self.state)

    def end(self, summary: dict[str, Any] | None) -> None:
        if summary is not None and not self.known["ended"]:
            self.writer.summary.update(final(summary))
            self._keep(ended=True)
        self.writer.finish(exit_code=0 if summary else 1)


TRACKERS: dict[str, type[Tracker]] = {kind.name: kind for kind in (CSV, MLflow, TensorBoard, WandB)}


@contextmanager
def by_name(names: str, run: str | Path) -> Iterator[list[Tracker]]:
    """Trackers by name, separated by commas; closed at the end, however it comes."""
    wanted = dict.fromkeys(name.strip() for name in names.split(",") if name.strip())
    if unknown := [name for name in wanted if name not in TRACKERS]:
        raise FedmuxError(f'--log "{unknown[0]}" is not known; choose from {", ".join(TRACKERS)}')
    with ExitStack() as closing:
        yield [closing.enter_context(TRACKERS[name](run)) for name in wanted]
