"""Rounds for MLflow."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmux.runs.trackers.tracker import LAST, Tracker, final, parameters


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
