"""Turns pydantic's validation errors into lines a person can act on: where, what is wrong, how to fix it."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def problems(error: ValidationError, kind: type[BaseModel], table: Any = None) -> list[str]:
    """One line for each error: where, what is wrong, how to fix it."""
    items = [_Problem.of(item, kind, table) for item in error.errors(include_url=False)]
    meant = {(*item.path[:-1], item.close) for item in items if item.close}
    lines: dict[tuple[str | int, ...], str] = {}
    for item in items:
        if item.sort == "missing" and item.path in meant:
            continue  # it is present, but misspelt
        lines[item.path] = f"{lines[item.path]} or {item.message}" if item.path in lines else item.line(table)
    given = {item.path: item.given for item in items if item.given}
    return [line + given.get(path, "") for path, line in lines.items()]


def cause(error: ValidationError) -> BaseException | None:
    """What a user's own code raised while a value was looked at, if that is what is wrong."""
    raised = (item.get("ctx", {}).get("error") for item in error.errors(include_url=False))
    return next((one for one in raised if isinstance(one, BaseException) and one.__cause__), None)


@dataclass(frozen=True)
class _Problem:
    sort: str  # pydantic's error type
    path: tuple[str | int, ...]  # as in the file
    message: str
    close: str | None = None  # the known key that an unknown one resembles
    given: str = ""  # ", got 3"

    @classmethod
    def of(cls, item: Any, kind: type[BaseModel], table: Any) -> "_Problem":
        path, kinds = _path(item["loc"], kind, item["type"], table)
        if item["type"] == "union_tag_not_found":
            return cls("missing", (*path, item["ctx"]["discriminator"].strip("'")), "")
        if item["type"] == "union_tag_invalid":
            context = item["ctx"]
            message = f"should be one of {context['expected_tags']}, got '{context['tag']}'"
            return cls(item["type"], (*path, context["discriminator"].strip("'")), message)
        if item["type"] == "extra_forbidden":
            known = sorted(field.alias or name for one in kinds for name, field in one.model_fields.items())
            close = next(iter(difflib.get_close_matches(str(path[-1]), known, 1)), None)
            return cls(item["type"], path, f"known: {', '.join(known)}", close)
        message = item["msg"].removeprefix("Value error, ").replace("Input should", "should")
        message = re.sub(r"a valid dictionary( or .*)?$", "a table", message)
        message = message.replace("a valid tuple", "a list").replace(" after validation", "")
        message = re.sub(r"^(List|Tuple) should", "should", message)
        message = re.sub(r", unable to parse .*$", "", message)
        value = item["input"]
        shown = re.search(r"\bgot\b|; ", message) or (isinstance(value, str) and value and value in message)
        given = f", got {_short(value)}" if isinstance(value, str | int | float) and not shown else ""
        return cls(item["type"], path, message, given=given)

    def line(self, table: Any) -> str:
        where, key = _place(list(self.path), table)
        if self.sort == "missing":
            return f'{where}missing key "{key}"; add it'
        if self.sort == "extra_forbidden":
            hint = self.message
            if self.close:
                hint = f'did you mean "{key.removesuffix(str(self.path[-1]))}{self.close}"?'
            return f'{where}unknown key "{key}"; {hint}'
        named = not key or self.message.startswith(f"{key} ")
        return f"{where}{self.message}" if named else f"{where}{key}: {self.message}"


def _path(
    location: Sequence[str | int], kind: type[BaseModel], error: str, table: Any
) -> tuple[tuple[str | int, ...], list[type[BaseModel]]]:
    """The location without what pydantic adds, and the models whose keys are possible at its end.

    Pydantic adds union tags, and paths into the table that a shorthand value stands for.
    """
    path: list[str | int] = []
    kinds = [kind]  # possible models at this place
    value = table  # at this place; None where the table is not known
    for position, part in enumerate(location):
        if len(kinds) > 1:  # a union of models: the tag comes first
            kinds = [one for one in kinds if part in _tags(one)] or kinds
            continue
        fields = [
            field for one in kinds for name, field in one.model_fields.items() if part in (name, field.alias)
        ]
        last = position == len(location) - 1
        if isinstance(part, int) or fields or (last and error == "extra_forbidden"):
            path.append(part)
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list | tuple) and isinstance(part, int):
                value = value[part] if part < len(value) else None
            if fields:
                kinds = [found for field in fields for found in _models(field.annotation)]
        if table is not None and not isinstance(value, dict | list | tuple) and error != "missing":
            break
    return tuple(path), kinds


def _place(path: list[str | int], table: Any) -> tuple[str, str]:
    """("task 2 "cifar": ", "learning_rate") from ["task", 1, "learning_rate"]."""
    words: list[str] = []
    for position, part in enumerate(path):
        if isinstance(part, int) and words:
            number = f"{'task' if words[-1] == 'tasks' else words[-1]} {part + 1}"
            name = _name(table, words[-1], part)
            words[-1] = number + (f' "{name}"' if isinstance(name, str) else "")
            if position < len(path) - 1:
                words[-1] += ": "
        else:
            words.append(str(part))
    prefix = words.pop(0) if len(words) > 1 and words[0].endswith(": ") else ""
    if len(words) > 1 and not prefix:
        return f"[{'.'.join(words[:-1])}] ", words[-1]
    return prefix, ".".join(words)


def _name(table: Any, key: str, number: int) -> Any:
    """Of a task that has one."""
    if key not in ("task", "tasks") or not isinstance(table, dict):
        return None
    item = table[key][number] if key in table else None
    return item.get("name") if isinstance(item, dict) else getattr(item, "name", None)


def _short(value: str | float) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text):,} characters)"


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    """The union tags by which pydantic may refer to this model."""
    kind = model.model_fields.get("kind")
    return (model.__name__, kind.default if kind else None)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
