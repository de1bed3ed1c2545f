"""Groups of alike clients in rotation ([P3])."""

from typing import ClassVar

from pydantic import Field

from fedmux.aggregation import Aggregator, Average
from fedmux.allocation import Allocator
from fedmux.allocation.group_allocator import GroupAllocator, Structure
from fedmux.methods import Method, register


@register
class Group(Method):
    """Each task trains on one group of alike clients at a time, in rotation."""

    name: ClassVar[str] = "mmfl-group"
    paper: ClassVar[str] = "[P3] Algorithm 1"

    structure: Structure = Field(
        "consistent",
        description="whether clients are alike in all tasks (cluster by all losses) or differ from task to "
        "task (`inconsistent`: by one task's losses, the next task's in the next cycle)",
    )
    k_max: int | None = Field(None, ge=2, description="most groups; default twice the number of tasks")
    standardise: bool = Field(False, description="cluster losses in units of their spread over clients")

    def allocator(self) -> Allocator:
        return GroupAllocator(self.structure, self.k_max, self.standardise)

    def aggregator(self) -> Aggregator:
        return Average("equal")
