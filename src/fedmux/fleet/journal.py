"""What everybody who takes part in a run notices: lines for a person, failures for the record.

One journal for a run. Whoever notices something writes it down here; the run reads it when a round ends.
"""

from fedmux.population import Ints
from fedmux.runs.rounds import Failure

MOST_NAMED = 4  # clients in one line


class Journal:
    def __init__(self) -> None:
        self.notices: list[str] = []
        self.failures: list[Failure] = []  # of this round

    def notice(self, line: str) -> None:
        """Something a person should know."""
        self.notices.append(line)

    def fail(self, failure: Failure) -> None:
        """Something that was asked of a client and did not come."""
        self.failures.append(failure)

    def release(self, clients: Ints, tasks: Ints) -> None:
        """Updates are about to be asked for. Nothing is noted here: in a simulation the jobs say it all."""

    def take_notices(self) -> list[str]:
        """All there are; they are then told."""
        told, self.notices[:] = self.notices[:], []
        return told

    def take_failures(self) -> list[Failure]:
        """The same of failures."""
        taken, self.failures[:] = self.failures[:], []
        return taken


def not_finite(client: int, task: str, phase: str, reason: str) -> Failure:
    """Of a simulated client, whose number is its id."""
    return Failure(str(client), task, phase, "not-finite", reason)


def told(failures: list[Failure]) -> str:
    """One line for clients of a task that failed alike."""
    first, *more = failures
    if not more:
        return str(first)
    named = ", ".join(failure.client for failure in failures[:MOST_NAMED])
    others = f" and {len(failures) - MOST_NAMED} more" if len(failures) > MOST_NAMED else ""
    return str(first).replace(f"client {first.client}", f"clients {named}{others}", 1)
