"""The base of everything that a user sets: keys are known, values frozen, numbers finite."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from fedmux.errors import FedmuxError
from fedmux.settings.mistakes import cause, problems

NUMBERS = (int, float, int | None, float | None)


class Checked(BaseModel):
    """A section, or the options of a method; made from wrong values it raises FedmuxError.

    `model_validate` raises pydantic's own error, for those who want to look into it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            kind = type(self)
            lines = [f"{kind.__name__}: {line}" for line in problems(error, kind, given)]
            raise FedmuxError("\n".join(lines)) from cause(error)

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, table: Any) -> Any:
        """Python takes it for 1."""
        for key, field in cls.model_fields.items():
            if isinstance(table, dict) and isinstance(table.get(key), bool) and field.annotation in NUMBERS:
                raise ValueError(f"{key} should be a number, got {str(table[key]).lower()}")
        return table

    # Otherwise pydantic would call this for every table inside another, and lose where the mistake is.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]
