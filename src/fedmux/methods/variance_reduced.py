"""Variance-reduced sampling ([P1]): GVR and LVR, alone and with stale updates."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from fedmux.aggregation import Aggregator, Unbiased
from fedmux.aggregation.low_rank import LowRankStore
from fedmux.aggregation.stale import PlannedStale, Stale
from fedmux.aggregation.store import ClientStore, NumberFormat, Storage, Store
from fedmux.allocation import Allocator
from fedmux.allocation.per_task import ByTask
from fedmux.allocation.plan import Draws, Signal
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.errors import FedmuxError
from fedmux.methods import Method, register


class Scored(Method):
    """Options shared by methods whose probabilities come from scores."""

    signal: ClassVar[Signal]
    kind: ClassVar[type[VarianceReduced]] = VarianceReduced

    floor: float = Field(1e-3, ge=0, description="added to every score, as a fraction of the mean score")
    mixing: float = Field(
        0.05, ge=0, le=1, description="share of Random in the probabilities; bounds the weights"
    )
    normalise: bool = Field(False, description="divide scores by their task's total, for equal expected load")
    report_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the clients asked for a score each round; for the rest, past scores are used",
    )
    draws: Draws = Field("independent", description="how processors are drawn; all have the same marginals")

    unbiased_when: ClassVar[dict[str, object] | None] = {}

    def allocator(self) -> Allocator:
        return self.kind(self.signal, self.score_options())

    def score_options(self) -> ScoreOptions:
        return ScoreOptions(self.floor, self.mixing, self.normalise, self.report_share, draws=self.draws)

    def aggregator(self) -> Aggregator:
        return Unbiased()


class Stored(Method):
    """Options shared by methods that keep a vector per client on the server."""

    precision: NumberFormat = Field("float32", description="precision of the vectors kept per client")
    storage: Storage = Field("memory", description="where the vectors are kept: in memory or in mapped files")
    rank: int | None = Field(
        None,
        ge=1,
        description="keep each vector as a mix of this many that the task's clients share; default: whole",
    )

    @model_validator(mode="after")
    def _low_rank_in_memory(self) -> "Stored":
        if self.rank is not None and self.storage == "disk":
            raise ValueError('rank keeps little and keeps it in memory; remove rank or storage = "disk"')
        return self

    def store(self) -> Store:
        if self.rank is None:
            return ClientStore(self.precision, self.storage)
        return LowRankStore(self.rank, self.precision)


@register
class Gvr(Scored):
    """Least variance by update norms: every client trains every task, drawn clients send updates."""

    name: ClassVar[str] = "mmfl-gvr"
    paper: ClassVar[str] = "[P1] Theorem 9"
    signal: ClassVar[Signal] = "norm"


@register
class Lvr(Scored):
    """Least variance by losses: every client reports its losses, drawn clients train."""

    name: ClassVar[str] = "mmfl-lvr"
    paper: ClassVar[str] = "[P1] Theorem 10"
    signal: ClassVar[Signal] = "loss"


@register
class GvrStale(Stored, Scored):
    """GVR's probabilities with stale updates as control variates."""

    name: ClassVar[str] = "mmfl-gvr*"
    aliases: ClassVar[tuple[str, ...]] = ("mmfl-gvr-stale",)
    paper: ClassVar[str] = "[P1] Eq. 22"
    signal: ClassVar[Signal] = "norm"

    def aggregator(self) -> Aggregator:
        return Stale(self.store())


@register
class LvrStale(GvrStale):
    """LVR's probabilities with stale updates as control variates."""

    name: ClassVar[str] = "mmfl-lvr*"
    aliases: ClassVar[tuple[str, ...]] = ("mmfl-lvr-stale",)
    paper: ClassVar[str] = "[P1] Theorem 10 and Eq. 22"
    signal: ClassVar[Signal] = "loss"


@register
class ResidualStale(GvrStale):
    """Stale updates with the scores that minimise their variance, ||G - h||."""

    name: ClassVar[str] = "mmfl-stale"
    aliases: ClassVar[tuple[str, ...]] = ()
    paper: ClassVar[str] = "[P1] Eq. 22, scored by its own variance"
    signal: ClassVar[Signal] = "residual"


@register
class BestStale(GvrStale):
    """Stale updates, each weighted by its projection: the least variance of this form."""

    name: ClassVar[str] = "mmfl-optimal-stale"
    aliases: ClassVar[tuple[str, ...]] = ()
    paper: ClassVar[str] = "[P1] Eq. 22 with beta = <G, h> / ||h||^2"
    signal: ClassVar[Signal] = "projection"

    def aggregator(self) -> Aggregator:
        return PlannedStale(self.store())

    def check(self, tasks: int) -> None:
        if self.report_share < 1:
            raise FedmuxError(
                'method "mmfl-optimal-stale" needs every client\'s projection; set report_share = 1'
            )


@register
class OptimalClientSampling(Scored):
    """Least variance by update norms within each task, which all get the same share of the budget."""

    name: ClassVar[str] = "optimal-client-sampling"
    paper: ClassVar[str] = "Chen, Horvath, Richtarik 2022; [P1p]"
    signal: ClassVar[Signal] = "norm"
    kind: ClassVar[type[VarianceReduced]] = ByTask

    normalise: Literal[False] = Field(
        False, description="always false: every task has its own share of the budget"
    )
