"""Reading TOML files, with one line for what is wrong with them."""

import tomllib
from pathlib import Path
from typing import Any

from fedmux.errors import FedmuxError


def read_toml(path: str | Path) -> dict[str, Any]:
    """The file's table; FedmuxError where it is missing or is not TOML."""
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise FedmuxError(f"{path}: no such file; `fedmux init` writes one to start from") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FedmuxError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FedmuxError(f"{path}: is not valid TOML: {error}") from None
