"""Least variance from forecasts: full participation's accuracy at Random's price."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from fedmux.aggregation import Aggregator, Unbiased
from fedmux.aggregation.stale import PlannedStale
from fedmux.allocation import Allocator
from fedmux.allocation.balance import Weighing
from fedmux.allocation.fair import Measure
from fedmux.allocation.fair_variance import FairTargets
from fedmux.allocation.forecast_sampling import FairForecastSampling, ForecastOptions, ForecastSampling
from fedmux.allocation.plan import Draws
from fedmux.methods import Method, register
from fedmux.methods.fairness import Alpha, demand_targets
from fedmux.methods.variance_reduced import Stored
from fedmux.runs.scale import Scale


class Forecasting(Stored):
    """Options shared by methods that forecast."""

    unbiased_when: ClassVar[dict[str, object] | None] = {}

    floor: float = Field(1e-3, ge=0, description="added to every score, as a fraction of the mean score")
    balance: Weighing = Field(
        "load",
        description="what tasks are weighed against each other by: `load`, for the same expected jobs; "
        "`step`, how far their models move; `scores`, as they are",
    )
    report_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the clients asked for their loss each round; those that train send it anyway",
    )
    draws: Draws = Field("dependent-rounding", description="how processors are drawn; the same marginals")
    stale: bool = Field(
        True, description="keep clients' last updates as control variates; false: no memory, larger variance"
    )

    @model_validator(mode="after")
    def _keeps_what_it_says(self) -> "Forecasting":
        kept = {"rank", "precision", "storage"} & self.model_fields_set
        if not self.stale and kept:
            raise ValueError(f"nothing is kept with stale = false; remove {min(kept)}, or set stale = true")
        return self

    def options(self, mixing: float) -> ForecastOptions:
        return ForecastOptions(
            self.floor, mixing, self.balance, self.report_share, self.draws, remembers=self.stale
        )

    def aggregator(self) -> Aggregator:
        return PlannedStale(self.store()) if self.stale else Unbiased()


@register
class Forecast(Forecasting):
    """Least variance by forecasts of norms and cosines: only drawn clients train or send anything."""

    name: ClassVar[str] = "mmfl-forecast"
    paper: ClassVar[str] = "fedmux; [P1] Eq. 22"

    mixing: float = Field(
        0.05, ge=0, le=1, description="share of Random in the probabilities; bounds the weights"
    )

    def allocator(self) -> Allocator:
        return ForecastSampling(self.options(self.mixing))


@register
class FairForecast(Forecasting):
    """mmfl-forecast with each task's expected jobs set by alpha-fairness."""

    name: ClassVar[str] = "mmfl-fair-forecast"
    paper: ClassVar[str] = "fedmux; [P1] Eqs. 22 and 23"

    alpha: Alpha = Field(
        3.0, ge=1, description="1: the same for all tasks; larger: more jobs for the worst task"
    )
    measure: Measure = Field(
        "loss",
        description="how badly a task does: its `loss`, as far as known, or its `error` (1 - progress)",
    )

    def fitted(self, scales: Mapping[str, Scale]) -> tuple[Method, str]:
        demand_targets(self.name, self.measure, scales)
        return self, ""

    def allocator(self) -> Allocator:
        return FairForecastSampling(self.options(mixing=0.0), FairTargets(self.alpha, self.measure))
