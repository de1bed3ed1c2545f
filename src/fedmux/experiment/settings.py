"""The base of every section of an experiment, and the names that it gives."""

import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict

from fedmux.settings import Checked


class Settings(Checked):
    model_config = ConfigDict(arbitrary_types_allowed=True, populate_by_name=True)


def _names_a_file(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        raise ValueError(
            'should begin with a letter or digit, then letters, digits, ".", "_" or "-", since it names files'
        )
    return value


Name = Annotated[str, AfterValidator(_names_a_file)]
