"""`--set key=value`: changes to an experiment file's table before it is validated."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmux.errors import FedmuxError
from fedmux.experiment.task import TaskSettings
from fedmux.toml import read_toml


def read_experiment(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """An experiment file's table with each `key=value` applied."""
    table = read_toml(path)
    for override in overrides:
        put(table, override)
    return table


def put(table: dict[str, Any], override: str) -> None:
    """Apply `key=value`: dotted keys; `task.KEY` means every task, `task.NAME.KEY` one of them."""
    key, equals, text = override.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")):
        raise FedmuxError(f'"{override}" should be key=value, such as population.clients=50')
    first, *rest = key.strip().split(".")
    if first in ("task", "tasks") and rest:
        listed = table.get("task")
        tasks = [task for task in listed if isinstance(task, dict)] if isinstance(listed, list) else []
        named = [task for task in tasks if len(rest) > 1 and task.get("name") == rest[0]]
        if len(rest) > 1 and not named:
            _check_task_key(rest[0], tasks, override)
        for task in named or tasks:
            _put(task, rest[1:] if named else rest, parse_value(text), override)
    else:
        _put(table, [first, *rest], parse_value(text), override)


def _check_task_key(key: str, tasks: list[dict[str, Any]], override: str) -> None:
    if key not in TaskSettings.model_fields:
        names = ", ".join(str(task.get("name")) for task in tasks)
        raise FedmuxError(f'"{override}": no task is named "{key}"; tasks: {names}')


def _put(table: dict[str, Any], keys: list[str], value: Any, override: str) -> None:
    for key in keys[:-1]:
        inner = table.get(key)
        if isinstance(inner, str) and key in ("method", "partition"):  # a name is shorthand for a table
            table[key] = inner = {"name" if key == "method" else "kind": inner}
        elif inner is not None and not isinstance(inner, dict):
            raise FedmuxError(f'"{override}": {key} is a single value, not a table; set {key} itself')
        table = table.setdefault(key, {})
    table[keys[-1]] = value


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text.strip()
