"""Fairness across tasks: FedFairMMFL and q-FFL ([P2]), FairVR ([P1])."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import AllowInfNan, Field, PlainSerializer

from fedmux.aggregation import Aggregator, Unbiased
from fedmux.aggregation.qffl import QFair
from fedmux.allocation import Allocator
from fedmux.allocation.fair import FairAllocator, Measure
from fedmux.allocation.fair_variance import FairVarianceAllocator
from fedmux.allocation.plan import Draws
from fedmux.allocation.random import RandomAllocator
from fedmux.errors import FedmuxError
from fedmux.methods import Method, register
from fedmux.methods.baselines import Sampled
from fedmux.runs.scale import Scale


def _as_written(alpha: float) -> float | str:
    """Run folders store experiments through JSON, which has no infinity; "inf" is read back as a number."""
    return alpha if np.isfinite(alpha) else "inf"


Alpha = Annotated[float, AllowInfNan(True), PlainSerializer(_as_written)]


@register
class FedFair(Sampled):
    """The worse a task does, the more clients train it."""

    name: ClassVar[str] = "fedfairmmfl"
    paper: ClassVar[str] = "[P2] Algorithm 1"
    unbiased_when: ClassVar[dict[str, object] | None] = {"aggregation": "unbiased"}

    alpha: Alpha = Field(
        3.0, ge=1, description="1: uniform over tasks; larger: more clients for the worst task"
    )
    measure: Measure | Literal["auto"] = Field(
        "auto",
        description="how badly a task does: its `error` (1 - accuracy, or 1 - progress of other metrics) or "
        "its `loss`; `auto`: the error if every metric has a target, else the loss",
    )

    def fitted(self, scales: Mapping[str, Scale]) -> tuple[Method, str]:
        lost = next((task for task, scale in scales.items() if scale.target is None), None)
        if self.measure == "auto" and lost is not None:
            notice = (
                f'method "{self.name}": fairness is by loss, since the metric of task "{lost}" has no target'
            )
            return self.model_copy(update={"measure": "loss"}), notice
        demand_targets(self.name, self.measure, scales)
        return self, ""

    def allocator(self) -> Allocator:
        measure = "error" if self.measure == "auto" else self.measure
        return FairAllocator(self.alpha, measure, self.participation)


def demand_targets(method: str, measure: str, scales: Mapping[str, Scale]) -> None:
    """An error is what is left to the target."""
    for task, scale in scales.items():
        if measure == "error" and scale.target is None:
            raise FedmuxError(
                f'method "{method}": measure = "error" needs a target for each metric, and "{scale.name}" of '
                f'task "{task}" has none; set metric.target, or measure = "loss"'
            )


class LossesOfTheDrawn(RandomAllocator):
    """Random; clients that train send the loss they started from, which the aggregator uses."""

    learns = frozenset({"loss"})


@register
class QFfl(Sampled):
    """Random draws; steps scaled to reduce the sum of the losses to the power q + 1."""

    name: ClassVar[str] = "q-ffl"
    paper: ClassVar[str] = "Li et al. 2020 over tasks; [P2] section VI"

    q: float = Field(
        2.0, ge=0, description="0: the plain step; larger: bad tasks move more (alpha - 1 in [P2])"
    )

    def allocator(self) -> Allocator:
        return LossesOfTheDrawn(self.participation)

    def aggregator(self) -> Aggregator:
        return QFair(super().aggregator(), self.q)


@register
class FairVr(Method):
    """Least variance with each task's expected jobs set by alpha-fairness."""

    name: ClassVar[str] = "mmfl-fairvr"
    paper: ClassVar[str] = "[P1] Eq. 23"
    unbiased_when: ClassVar[dict[str, object] | None] = {}

    alpha: Alpha = Field(
        3.0, ge=1, description="1: the same for all tasks; larger: more jobs for the worst task"
    )
    measure: Measure = Field(
        "loss", description="how badly a task does: its `loss` or its `error` (1 - progress)"
    )
    floor: float = Field(1e-3, gt=0, description="added to every score, as a fraction of the mean score")
    draws: Draws = Field("independent", description="how processors are drawn; all have the same marginals")

    def fitted(self, scales: Mapping[str, Scale]) -> tuple[Method, str]:
        demand_targets(self.name, self.measure, scales)
        return self, ""

    def allocator(self) -> Allocator:
        return FairVarianceAllocator(self.alpha, self.measure, self.floor, self.draws)

    def aggregator(self) -> Aggregator:
        return Unbiased()
