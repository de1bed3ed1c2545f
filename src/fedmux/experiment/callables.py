"""Keys that take a name or, in Python, the thing itself: a class, a function, anything that can be called.

A run folder keeps `module:name` where that is how to import it, else `<name>`; such a run is resumed with the
experiment in hand.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo

from fedmux.data.sources import FUNCTION
from fedmux.importing import only_in_python, reference_to
from fedmux.tasks.losses import LOSS
from fedmux.tasks.registry import FACTORY

SIGNATURES = {
    "model": FACTORY,
    "data": FUNCTION,
    "loss": LOSS,
    "name": LOSS,
}  # by key: what the thing must be
REMEDY = "resume in Python: fedmux.resume(folder, experiment=...)"


def _checked(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        refuse_what_is_lost(value)
    elif not callable(value):
        signature = SIGNATURES.get(str(info.field_name), "something that can be called")
        raise ValueError(f"should be a name, or {signature}; got {type(value).__name__}")
    return value


def refuse_what_is_lost(value: str) -> None:
    """A run folder's name for something that only the process that began the run had."""
    if only_in_python(value):
        raise ValueError(f"{value} was given in Python and cannot be imported; {REMEDY}")


def written(value: Any) -> str:
    """How a run folder names it."""
    return value if isinstance(value, str) else reference_to(value)


NameOrCallable = Annotated[
    str | Callable[..., Any], BeforeValidator(_checked), PlainSerializer(written, when_used="json")
]
