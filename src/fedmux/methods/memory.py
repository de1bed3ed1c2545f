"""Methods that draw at random and use what clients sent earlier to reduce variance or drift."""

from typing import ClassVar, Literal

from pydantic import Field

from fedmux.aggregation import Aggregator
from fedmux.aggregation.mifa import Mifa
from fedmux.aggregation.scaffold import Scaffold as ScaffoldAggregator
from fedmux.aggregation.stale import Stale
from fedmux.aggregation.store import ClientStore
from fedmux.allocation import Allocator
from fedmux.allocation.random import RandomAllocator, WarmStart
from fedmux.errors import FedmuxError
from fedmux.methods import register
from fedmux.methods.variance_reduced import Stored


@register
class FedVarp(Stored):
    """Random draws with stale updates as control variates."""

    name: ClassVar[str] = "fedvarp"
    paper: ClassVar[str] = "Jhunjhunwala et al. 2022; [P1] Eq. 22 with Random"
    unbiased_when: ClassVar[dict[str, object] | None] = {}

    def allocator(self) -> Allocator:
        return RandomAllocator("processors")

    def aggregator(self) -> Aggregator:
        return Stale(self.store())


@register
class FedStale(FedVarp):
    """FedVARP with a weight on the stale part: fixed, or estimated from the clients that train."""

    name: ClassVar[str] = "fedstale"
    paper: ClassVar[str] = "Rodio & Neglia 2024"

    beta: float | Literal["estimated"] = Field("estimated", description="weight of stale updates; 0: Eq. 3")

    def aggregator(self) -> Aggregator:
        return Stale(self.store(), self.beta)


@register
class MifaMethod(Stored):
    """Random draws; every client's last update counts as if it were fresh."""

    name: ClassVar[str] = "mifa"
    paper: ClassVar[str] = "Gu et al. 2021"

    rank: int | None = Field(None, ge=1, description="not for this method: its step is made of whole vectors")
    warm_start: bool = Field(False, description="all clients train in the first round, as in the original")

    def allocator(self) -> Allocator:
        return WarmStart("processors") if self.warm_start else RandomAllocator("processors")

    def aggregator(self) -> Aggregator:
        return Mifa(ClientStore(self.precision, self.storage))

    def check(self, tasks: int) -> None:
        if self.rank is not None:
            raise FedmuxError(
                f'method "{self.name}" steps by the vectors that it keeps and needs them whole; remove rank; '
                'precision = "bfloat16" or storage = "disk" saves memory'
            )


@register
class Scaffold(Stored):
    """Random draws; control variates correct each local step."""

    name: ClassVar[str] = "scaffold"
    paper: ClassVar[str] = "Karimireddy et al. 2020"
    unbiased_when: ClassVar[dict[str, object] | None] = {}

    def allocator(self) -> Allocator:
        return RandomAllocator("processors")

    def aggregator(self) -> Aggregator:
        return ScaffoldAggregator(self.store())
