"""The options that several verbs share, and how a verb takes a group of them."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmux.errors import FedmuxError

File = Annotated[Path, typer.Argument(help="Experiment file (TOML).", metavar="EXPERIMENT")]
Folder = Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write: new or empty.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file; repeatable."),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, or auto: a GPU if there is one.")]
Workers = Annotated[
    str | None, typer.Option(metavar="N|auto", help="Processes here; auto: one per core, or one per GPU.")
]
Parallel = Annotated[int, typer.Option(min=0, help="Runs at a time; 0: one per core, several per GPU.")]
Yes = Annotated[bool, typer.Option("--yes", help="Start thousands of runs without being asked.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, tables or pictures.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def listed(text: str | None, option: str, example: str) -> list[str]:
    """What stands between commas; nothing where the option is not given, but never an empty choice."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise FedmuxError(f'{option} "{text}": a name is missing; separate them by commas, such as {example}')
    return parts


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """Lets a verb take dataclasses of options: typer sees the fields of each in its place."""
    groups: dict[str, Any] = {}
    expanded: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            expanded += [_parameter(option) for option in fields(parameter.annotation)]
        else:
            expanded.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(verb)
    def called(**given: Any) -> None:
        made = {
            name: group(**{option.name: given.pop(option.name) for option in fields(group)})
            for name, group in groups.items()
        }
        verb(**given, **made)

    called.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in expanded}
    return called


def _parameter(option: "Field[Any]") -> inspect.Parameter:
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type
    )
