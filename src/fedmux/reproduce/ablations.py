"""Methods as some published code has them rather than as the papers do: to see what moves a figure.

None of them is registered; a preset or an experiment names them as `fedmux.reproduce.ablations:CLASS`.
"""

from typing import ClassVar

from fedmux.allocation import Allocator
from fedmux.allocation.plan import RoundState, Signals
from fedmux.allocation.random import RandomAllocator
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.methods.memory import FedVarp
from fedmux.methods.variance_reduced import Lvr
from fedmux.population import Floats


class _LossOverPoints(VarianceReduced):
    def score(self, state: RoundState, signals: Signals) -> Floats:
        """d |f| / (B n): the mean loss divided by the number of points a second time."""
        return super().score(state, signals) / state.population.sizes.clip(min=1)


class LossOverPoints(Lvr):
    """MMFL-LVR whose scores divide a client's mean loss by its points once more."""

    name: ClassVar[str] = "lvr-loss-over-points"

    def allocator(self) -> Allocator:
        options = ScoreOptions(self.floor, self.mixing, self.normalise, self.report_share, draws=self.draws)
        return _LossOverPoints(self.signal, options)


class FedVarpOneJob(FedVarp):
    """FedVARP that draws clients, not processors: B_i counts as 1 for everybody."""

    name: ClassVar[str] = "fedvarp-one-job"

    def allocator(self) -> Allocator:
        return RandomAllocator("clients")
