"""Groups of similar clients in rotation ([P3])."""

from typing import ClassVar

from pydantic import Field

from fedmux.aggregation import Aggregator, Average
from fedmux.allocation import Allocator
from fedmux.allocation.group_allocator import GroupAllocator, Structure
from fedmux.methods import Method, register


@register
class Group(Method):
    """Each task trains on one group of similar clients at a time, in rotation."""

    name: ClassVar[str] = "mmfl-group"
    paper: ClassVar[str] = "[P3] Algorithm 1"

    structure: Structure = Field(
        "consistent",
        description="`consistent`: clients are similar across all tasks, so cluster by all losses; "
        "`inconsistent`: similarity differs by task, so cluster by one task's losses, a new task each cycle",
    )
    k_max: int | None = Field(None, ge=2, description="maximum number of groups; default twice the tasks")
    standardise: bool = Field(False, description="standardise each task's losses before clustering")

    def allocator(self) -> Allocator:
        return GroupAllocator(self.structure, self.k_max, self.standardise)

    def aggregator(self) -> Aggregator:
        return Average("equal")
