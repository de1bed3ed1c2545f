"""What a refusal must say: where the mistake is and what would be right. The words around them are free."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedmux.errors import FedmuxError

Words = str | tuple[str, ...]


def refuses(line: str, place: Words, remedy: Words) -> None:
    """A message is one line that names the place (file, table, task, key, value) and the remedy.

    The remedy is what to do, what would be right, or failing both the cause. Each word has a part of the
    line to itself, so that `"rounds"` after `"rouds"` is not found in the place.
    """
    assert "\n" not in line, line
    left = line
    for what, words in (("place", place), ("remedy", remedy)):
        for word in (words,) if isinstance(words, str) else words:
            assert word in left, f"{what} {word!r} is not named: {line}"
            left = left.replace(word, "\0", 1)


@contextmanager
def refused(place: Words, remedy: Words, kind: type[Exception] = FedmuxError) -> Iterator[None]:
    """What is done inside is refused with such a message."""
    with pytest.raises(kind) as error:
        yield
    refuses(str(error.value), place, remedy)
