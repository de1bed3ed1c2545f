"""What happens during a run that should be reported: notices for the user, failures for the record.

Each run has one journal. Any part of the run can write to it. Notices are passed on at once, failures
are collected until the round ends.
"""

from collections.abc import Callable

from fedmux.population import Ints
from fedmux.runs.rounds import Failure

MOST_NAMED = 4  # clients in one line


class Journal:
    def __init__(self) -> None:
        self.notices: list[str] = []  # while nobody listens
        self._listener: Callable[[str], None] | None = None
        self.failures: list[Failure] = []  # of this round

    def notice(self, line: str) -> None:
        """Something the user should know."""
        if self._listener:
            self._listener(line)
        else:
            self.notices.append(line)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Pass on each notice at once from now on, and first those that are waiting."""
        for line in self.notices:
            listener(line)
        self.notices, self._listener = [], listener

    def fail(self, failure: Failure) -> None:
        """Something that was requested from a client and did not arrive."""
        self.failures.append(failure)

    def release(self, clients: Ints, tasks: Ints) -> None:
        """Updates are about to be requested. Not recorded here: in a simulation the jobs tell as much."""

    def take_failures(self) -> list[Failure]:
        """All failures; clears them."""
        taken, self.failures[:] = self.failures[:], []
        return taken


def not_finite(client: int, task: str, phase: str, reason: str) -> Failure:
    """The failure of a simulated client, whose number is its id."""
    return Failure(str(client), task, phase, "not-finite", reason)


def in_one_line(failures: list[Failure]) -> str:
    """One line for clients of a task that failed in the same way."""
    first, *more = failures
    if not more:
        return str(first)
    named = ", ".join(failure.client for failure in failures[:MOST_NAMED])
    others = f" and {len(failures) - MOST_NAMED} more" if len(failures) > MOST_NAMED else ""
    return str(first).replace(f"client {first.client}", f"clients {named}{others}", 1)
