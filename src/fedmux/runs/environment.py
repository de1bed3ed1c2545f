"""Versions and hardware that a run is made with."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """For a run's `environment.json`."""
    packages = ("fedmux", "torch", "numpy", "scikit-learn", "safetensors", "pydantic")
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def _commit() -> str | None:
    """Of the code, where it is a checkout; with a + if it was changed since."""
    here = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        for query in (
            ["ls-files", "--error-unmatch", "__init__.py"],
            ["rev-parse", "--short=12", "HEAD"],
        ):
            commit = subprocess.run(
                [*here, *query], capture_output=True, text=True, check=True
            ).stdout.strip()
        changed = subprocess.run(
            [*here, "diff", "--quiet", "HEAD", "--", "."], capture_output=True
        ).returncode
    except (OSError, subprocess.CalledProcessError):  # no git, or not a checkout of ours
        return None
    return commit + "+" * bool(changed)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
