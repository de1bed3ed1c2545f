"""Rounds for Weights & Biases."""

import json
import os
import secrets
from pathlib import Path
from typing import Any

from fedmux.runs.trackers.tracker import Tracker, final, parameters


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
