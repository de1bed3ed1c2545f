"""From a TOML file to a validated object, and from a validation error to lines a person can act on."""

import difflib
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from fedmux.errors import FedmuxError

Validated = TypeVar("Validated", bound=BaseModel)


def read_toml(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The file's table, with each `key=value` put in."""
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise FedmuxError(f"{path}: no such file; `fedmux init` writes one to start from") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FedmuxError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FedmuxError(f"{path}: is not valid TOML: {error}") from None
    for override in overrides:
        put(table, override)
    return table


def put(table: dict[str, Any], override: str) -> None:
    """Apply `key=value`: dotted keys; `task.KEY` means every task, `task.NAME.KEY` one of them."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise FedmuxError(f'"{override}" should be key=value, such as population.clients=50')
    first, *rest = key.strip().split(".")
    if first in ("task", "tasks") and rest:
        tasks = [task for task in table.get("task", []) if isinstance(task, dict)]
        named = [task for task in tasks if len(rest) > 1 and task.get("name") == rest[0]]
        for task in named or tasks:
            _put(task, rest[1:] if named else rest, parse_value(text), override)
    else:
        _put(table, [first, *rest], parse_value(text), override)


def _put(table: dict[str, Any], keys: list[str], value: Any, override: str) -> None:
    for key in keys[:-1]:
        inner = table.get(key)
        if isinstance(inner, str) and key in ("method", "partition"):  # a name may stand for a table
            table[key] = inner = {"name" if key == "method" else "kind": inner}
        elif inner is not None and not isinstance(inner, dict):
            raise FedmuxError(f'"{override}": {key} is a single value, not a table; set {key} itself')
        table = table.setdefault(key, {})
    table[keys[-1]] = value


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def validated(kind: type[Validated], table: dict[str, Any], source: str) -> Validated:
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise FedmuxError("\n".join(f"{source}: {line}" for line in problems(error, kind, table))) from None


def problems(error: ValidationError, kind: type[BaseModel], table: Any = None) -> list[str]:
    """One line for each thing that is wrong: where, what, and what would be right."""
    return [_problem(item, kind, table) for item in error.errors(include_url=False)]


def _problem(item: Any, kind: type[BaseModel], table: Any) -> str:
    path = _path(item["loc"], table)
    where, key = _place(path, table)
    message = item["msg"].removeprefix("Value error, ").replace("Input should", "should")
    if item["type"] == "missing":
        return f'{where}missing key "{key}"; add it'
    if item["type"] == "extra_forbidden":
        known = sorted(_keys(kind, path[:-1]))
        close = difflib.get_close_matches(str(key), known, 1)
        hint = f'did you mean "{close[0]}"?' if close else f"known: {', '.join(known)}"
        return f'{where}unknown key "{key}"; {hint}'
    value = item["input"]
    got = f", got {value!r}" if isinstance(value, str | int | float) and "got" not in message else ""
    return f"{where}{key}: {message}{got}" if key else f"{where}{message}"


def _path(location: Sequence[str | int], table: Any) -> list[str | int]:
    """The location without what pydantic adds: union tags, and the inside of a shorthand value."""
    if table is None:
        return list(location)
    path: list[str | int] = []
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(table, dict):
            if part not in table and not last:
                continue
            table = table.get(part)
        elif isinstance(table, list) and isinstance(part, int):
            table = table[part]
        else:
            break
        path.append(part)
    return path


def _place(path: list[str | int], table: Any) -> tuple[str, str]:
    """("task 2 "cifar": ", "learning_rate") from ["task", 1, "learning_rate"]."""
    words: list[str] = []
    for position, part in enumerate(path):
        if isinstance(part, int) and words:
            number = f"{words[-1]} {part + 1}"
            item = table["task"][part] if words[-1] == "task" and isinstance(table, dict) else None
            name = item.get("name") if isinstance(item, dict) else None
            words[-1] = number + (f' "{name}"' if isinstance(name, str) else "")
            if position < len(path) - 1:
                words[-1] += ": "
        else:
            words.append(str(part))
    prefix = words.pop(0) if len(words) > 1 and words[0].endswith(": ") else ""
    if len(words) > 1 and not prefix:
        return f"[{'.'.join(words[:-1])}] ", words[-1]
    return prefix, ".".join(words)


def _keys(kind: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    """The keys that are allowed at a place."""
    kinds = [kind]
    for part in path:
        if isinstance(part, int):
            continue
        inner = [
            found
            for one in kinds
            for name, field in one.model_fields.items()
            if part in (name, field.alias)
            for found in _models(field.annotation)
        ]
        kinds = inner or kinds
    return {field.alias or name for one in kinds for name, field in one.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
