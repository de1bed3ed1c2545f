"""Reads TOML files; what is wrong with one is reported in one line."""

import tomllib
from pathlib import Path
from typing import Any

from fedmux.errors import FedmuxError


def read_toml(path: str | Path) -> dict[str, Any]:
    """The file's table; FedmuxError if the file is missing or not TOML."""
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise FedmuxError(f"{path}: no such file; `fedmux init` writes one to start from") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FedmuxError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise FedmuxError(f"{path}: not valid TOML: tables or lists are nested too deeply") from None
    except ValueError as error:  # numbers of thousands of digits are a ValueError too
        raise FedmuxError(f"{path}: not valid TOML: {error}") from None
