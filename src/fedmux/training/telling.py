"""What the user is shown during a run: each thing once, similar things in one line."""

from collections.abc import Callable, Sequence

from fedmux.fleet.journal import Journal, in_one_line
from fedmux.population import Population
from fedmux.runs.rounds import Divergence, Failure
from fedmux.training.state import State

Notice = Callable[[str], None]


class Teller:
    """Puts the failures and divergences of a round into words; `notice` is called with each line."""

    def __init__(self, notice: Notice) -> None:
        self.notice = notice
        self._named: set[tuple[str, str, str]] = set()  # failures reported only once

    def tell(self, failures: Sequence[Failure], diverged: Sequence[Divergence] = ()) -> None:
        for line in [*self._lines(failures), *map(str, diverged)]:
            self.notice(line)

    def _lines(self, failures: Sequence[Failure]) -> list[str]:
        """One for all clients of a task that failed in the same way; non-finite values once per client."""
        alike: dict[tuple[str, str, str], list[Failure]] = {}
        for failure in failures:
            who = (failure.client, failure.task, failure.phase)
            if failure.kind == "slow" or (failure.kind == "not-finite" and who in self._named):
                continue
            self._named.add(who)
            alike.setdefault((failure.task, failure.phase, failure.reason), []).append(failure)
        return [in_one_line(group) for group in alike.values()]


def note_idle(
    state: State, people: Population, names: list[str], running: list[bool], journal: Journal
) -> None:
    """Notify once that a task has no client to train it, and once that it continues."""
    idle = {name for s, name in enumerate(names) if running[s] and not people.available[:, s].any()}
    for name in sorted(idle - state.idle):
        journal.notice(f'round {state.round + 1}: task "{name}" pauses, no client present has it')
    for name in sorted(state.idle - idle):
        journal.notice(f'round {state.round + 1}: task "{name}" continues')
    state.idle = idle
