"""Rounds for TensorBoard."""

import time
from pathlib import Path
from typing import Any

from fedmux.runs.scale import over_tasks_of, scales_of
from fedmux.runs.trackers.tracker import LAST, Tracker, final, parameters


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
        measure = over_tasks_of(scales_of(table).values())
        begin, session, self.session_end = hparams(parameters(table), {f"{measure}/mean": 0.0})
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
