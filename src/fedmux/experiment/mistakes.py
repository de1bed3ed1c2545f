"""A table from a file, validated: its mistakes in lines that begin with the file's name."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedmux.errors import FedmuxError
from fedmux.settings.mistakes import cause, problems

Validated = TypeVar("Validated", bound=BaseModel)


def validated(kind: type[Validated], table: dict[str, Any], source: str) -> Validated:
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise FedmuxError("\n".join(f"{source}: {line}" for line in problems(error, kind, table))) from cause(
            error
        )
