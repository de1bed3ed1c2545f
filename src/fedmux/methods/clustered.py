"""Clustered sampling: one client from each of m clusters."""

from typing import ClassVar

from fedmux.aggregation import Aggregator, Unbiased
from fedmux.allocation import Allocator
from fedmux.allocation.by_data import ByData
from fedmux.methods import Method, register


@register
class ClusteredSampling(Method):
    """Clients are clustered by size; each cluster sends one, drawn in proportion to data."""

    name: ClassVar[str] = "clustered-sampling"
    paper: ClassVar[str] = "Fraboni et al. 2021, Algorithm 1"
    unbiased_when: ClassVar[dict[str, object] | None] = {}

    def allocator(self) -> Allocator:
        return ByData()

    def aggregator(self) -> Aggregator:
        return Unbiased()
