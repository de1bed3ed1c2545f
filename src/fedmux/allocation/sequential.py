"""One task at a time: the naive baseline of [P1] and [P2], everybody on one task for a block of rounds."""

from fedmux.allocation.plan import Allocator, Probabilities, RoundState
from fedmux.allocation.random import Participation, spread
from fedmux.population import Floats


class SequentialAllocator(Allocator):
    def __init__(self, participation: Participation, block: int | None) -> None:
        self.participation = participation
        self.block = block  # rounds for a task before the next one's turn; None: the run divided evenly

    def plan(self, state: RoundState) -> Probabilities:
        tasks = state.population.tasks
        block = self.block or -(-state.rounds // tasks)
        task = state.round // block % tasks
        choice: Floats = state.population.available.astype(float)
        choice[:, :task] = 0
        choice[:, task + 1 :] = 0
        return spread(state, choice, self.participation)
