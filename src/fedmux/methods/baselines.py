"""The baselines that the papers compare with: random, round robin, sequential, full, FedAvg."""

from typing import ClassVar, Literal

from pydantic import Field

from fedmux.aggregation import Aggregator, Average, Unbiased
from fedmux.aggregation.proximal import Proximal
from fedmux.allocation import Allocator
from fedmux.allocation.full import FullAllocator
from fedmux.allocation.random import Participation, RandomAllocator
from fedmux.allocation.round_robin import RoundRobinAllocator
from fedmux.allocation.sequential import SequentialAllocator
from fedmux.errors import FedmuxError
from fedmux.methods import Method, register

Aggregation = Literal["unbiased", "weighted", "mean"]


class Sampled(Method):
    """Options shared by methods that pick participants uniformly: who draws, and how updates are averaged."""

    participation: Participation = Field(
        "clients",
        description="who draws: each processor on its own, or m clients without replacement, one job each",
    )
    aggregation: Aggregation = Field(
        "weighted", description="inverse-probability weights, the data-weighted average, or the plain mean"
    )

    def aggregator(self) -> Aggregator:
        if self.aggregation == "unbiased":
            return Unbiased()
        return Average("data" if self.aggregation == "weighted" else "equal")


@register
class Random(Sampled):
    """All clients equally likely, each uniform over its own tasks."""

    name: ClassVar[str] = "random"
    paper: ClassVar[str] = "[P1] section VII, [P2] section III"
    unbiased_when: ClassVar[dict[str, object] | None] = {"aggregation": "unbiased"}

    participation: Participation = Field(
        "processors", description=Sampled.model_fields["participation"].description
    )
    aggregation: Aggregation = Field("unbiased", description=Sampled.model_fields["aggregation"].description)

    def allocator(self) -> Allocator:
        return RandomAllocator(self.participation)


@register
class FedProx(Random):
    """Random with a pull towards the global model in every local step."""

    name: ClassVar[str] = "fedprox"
    paper: ClassVar[str] = "Li et al. 2020"

    mu: float = Field(0.01, ge=0, description="strength of the pull, mu / 2 ||w - w_start||^2")

    def aggregator(self) -> Aggregator:
        aggregator = super().aggregator()
        aggregator.local_rule = Proximal(self.mu)
        return aggregator


@register
class RoundRobin(Sampled):
    """Tasks rotate over random subsets of the clients."""

    name: ClassVar[str] = "round-robin"
    paper: ClassVar[str] = "Bhuyan & Moharir; [P2] section VI"
    unbiased_when: ClassVar[dict[str, object] | None] = {"aggregation": "unbiased"}

    def allocator(self) -> Allocator:
        return RoundRobinAllocator(self.participation)


@register
class Sequential(Sampled):
    """One task at a time: all drawn clients train it for a block of rounds, then move to the next."""

    name: ClassVar[str] = "sequential"
    paper: ClassVar[str] = "[P1] section I, [P2] section I"

    block: int | None = Field(
        None, ge=1, description="rounds per task before moving to the next; default rounds / tasks"
    )

    def allocator(self) -> Allocator:
        return SequentialAllocator(self.participation, self.block)


@register
class Full(Method):
    """Every client trains every task it has in every round: the upper bound."""

    name: ClassVar[str] = "full"
    paper: ClassVar[str] = "[P1] section VII"
    unbiased_when: ClassVar[dict[str, object] | None] = {}

    def allocator(self) -> Allocator:
        return FullAllocator()

    def aggregator(self) -> Aggregator:
        return Unbiased()


@register
class FedAvg(Method):
    """One task: m clients without replacement, their updates averaged by data."""

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al. 2017"

    def allocator(self) -> Allocator:
        return RandomAllocator("clients")

    def aggregator(self) -> Aggregator:
        return Average("data")

    def check(self, tasks: int) -> None:
        if tasks != 1:
            raise FedmuxError(f'method "fedavg" trains one task, the experiment has {tasks}; use "random"')
