"""Methods that pick the clients with large losses: power-of-choice, Multi-UCB."""

from typing import ClassVar

from pydantic import Field

from fedmux.aggregation import Aggregator, Average
from fedmux.allocation import Allocator
from fedmux.allocation.multi_ucb import MultiUcbAllocator
from fedmux.allocation.power_of_choice import PowerOfChoiceAllocator
from fedmux.methods import Method, register


@register
class PowerOfChoice(Method):
    """Of candidates drawn in proportion to data, those with the largest losses train."""

    name: ClassVar[str] = "power-of-choice"
    paper: ClassVar[str] = "Cho, Wang, Joshi 2020"

    candidates: float = Field(
        2.0, ge=1, description="clients asked for their loss, for each that trains: d / m"
    )

    def allocator(self) -> Allocator:
        return PowerOfChoiceAllocator(self.candidates)

    def aggregator(self) -> Aggregator:
        return Average("equal")


@register
class MultiUcb(Method):
    """Tasks in turn pick the client with the largest upper confidence bound on its loss."""

    name: ClassVar[str] = "multi-ucb"
    paper: ClassVar[str] = "Bhuyan & Moharir 2022"

    discount: float = Field(0.9, gt=0, lt=1, description="what remains of the weight of a loss after a round")
    exploration: float = Field(1.0, ge=0, description="weight of the bonus for pairs that trained little")
    warm_start: bool = Field(
        False,
        description="all clients train one task after the other in the first rounds, as in the original",
    )

    def allocator(self) -> Allocator:
        return MultiUcbAllocator(self.discount, self.exploration, self.warm_start)

    def aggregator(self) -> Aggregator:
        return Average("data")
