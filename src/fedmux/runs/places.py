"""Where a run or a comparison is written."""

from datetime import datetime
from pathlib import Path


def folder_for(name: str, chosen: str | Path | None = None, configured: str | Path | None = None) -> Path:
    """The folder the caller chose, else the experiment's output.folder, else runs/<name>-<time>."""
    return Path(chosen or configured or _unused(Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"))


def _unused(base: Path) -> Path:
    """The path itself, or with a number appended if it exists."""
    candidates = (base.with_name(base.name + f"-{number}" * (number > 1)) for number in range(1, 1000))
    return next(path for path in candidates if not path.exists())
