"""MMFL-StaleVRE: LVR with stale updates whose weights are learned from the clients that train."""

from typing import ClassVar

from pydantic import Field

from fedmux.aggregation import Aggregator
from fedmux.aggregation.stale import PlannedStale
from fedmux.allocation import Allocator
from fedmux.allocation.decaying import DecayingBetas
from fedmux.methods import register
from fedmux.methods.variance_reduced import LvrStale


@register
class StaleVre(LvrStale):
    """LVR's probabilities with stale updates, whose weights fall with their age as those who train show."""

    name: ClassVar[str] = "mmfl-stalevre"
    aliases: ClassVar[tuple[str, ...]] = ()
    paper: ClassVar[str] = "[P1] in its later version, MMFL-StaleVRE"

    beta: float = Field(
        0.9, ge=0, le=1, description="weight of a stale update in the round after it was sent"
    )

    def allocator(self) -> Allocator:
        return DecayingBetas(self.beta, self.score_options())

    def aggregator(self) -> Aggregator:
        return PlannedStale(self.store())
