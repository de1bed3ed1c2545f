"""A preset: one experiment of a paper, as a TOML file of `presets/`, with the paper's figures.

Its `[experiment]` is an experiment file's table, `[compare]` included. `runs` instead takes the experiment of
another preset, so that a figure drawn from a table's runs does not train them again.
"""

import copy
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment, Settings
from fedmux.experiment.mistakes import validated
from fedmux.importing import closest
from fedmux.recruitment.bids import BidLaw


def _figure(value: Any) -> Any:
    """A number, or [number, deviation]."""
    return {"value": value[0], "spread": value[1]} if isinstance(value, list) else {"value": value}


class Figure(Settings):
    """What a paper reports for one row."""

    value: float
    spread: float | None = None


class Claim(Settings):
    """A statement of the paper about two rows, to be found true or not."""

    says: str
    measure: str
    of: str  # a row
    over: list[str]  # the rows that it is set against
    by: float = 0.0  # the least difference for it to hold
    within: float | None = None  # instead: the largest difference, either way
    at_most: float | None = None  # instead: the largest difference upwards


class Variant(Settings):
    """One setting of several: the preset's experiment with keys changed, or with its first tasks only."""

    name: str
    set: list[str] = Field([])
    tasks: int | None = Field(None, ge=1)


class Picture(Settings):
    """A chart of the report, with what it needs beyond the runs."""

    chart: str
    rounds: list[int] = Field([])
    task: str | None = None


def _picture(value: Any) -> Any:
    return {"chart": value} if isinstance(value, str) else value


class Auction(Settings):
    """Auctions without training: users' bids for each task, the budgets to spend, and the posted prices."""

    users: int = Field(ge=1)
    mechanisms: list[str]  # those with a budget
    bids: list[BidLaw]
    budgets: list[float]
    prices: list[float]

    @property
    def held(self) -> list[tuple[str, str, float | None]]:
        """What is compared: its name, its mechanism and, where that has no budget, the price."""
        with_budget = [(name, name, None) for name in self.mechanisms]
        return with_budget + [(f"posted-price {price:g}", "posted-price", price) for price in self.prices]


class Preset(Settings):
    name: str
    title: str
    paper: str
    notes: list[str] = Field([])  # what was decided where the paper leaves it open
    seeds: int = Field(5, ge=1)
    runs: str | None = None
    methods: list[str | dict[str, Any]] = Field([])  # with `runs`; none: all of that preset's
    baseline: str | None = None  # with `runs`
    measures: list[str] = Field(["average", "minimum"])
    costs: list[str] = Field([])  # more measures, in a table of their own
    theirs: str = "paper"  # whose the figures are
    charts: list[Annotated[Picture, BeforeValidator(_picture)]] = Field([])
    figures: dict[str, dict[str, Annotated[Figure, BeforeValidator(_figure)]]] = Field({})
    claims: list[Claim] = Field([], alias="claim")
    variants: list[Variant] = Field([], alias="variant")
    experiment: dict[str, Any] | None = None
    auction: Auction | None = None

    @model_validator(mode="after")
    def _whole(self) -> "Preset":
        if sum(part is not None for part in (self.runs, self.experiment, self.auction)) != 1:
            raise ValueError("give one of experiment, runs and auction")
        return self

    @property
    def heading(self) -> str:
        return f"{self.name}: {self.title} ({self.paper})"

    @property
    def read(self) -> list[str]:
        """Every measure that is read off its runs."""
        return [*self.measures, *self.costs]

    @property
    def source(self) -> "Preset":
        """The preset whose runs these are."""
        return find(self.runs) if self.runs else self

    def table(self) -> dict[str, Any]:
        """The experiment's own table."""
        assert self.source.experiment is not None
        table = copy.deepcopy(self.source.experiment)
        if not self.runs:
            return table
        own = {"methods": self.methods, "baseline": self.baseline}
        return {**table, "compare": table["compare"] | {key: value for key, value in own.items() if value}}

    @property
    def cells(self) -> int:
        """Runs that it takes, with all its seeds."""
        return len(self.described().compare.methods) * max(1, len(self.source.variants)) * self.seeds

    def described(self) -> Experiment:
        return validated(Experiment, self.table(), f"preset {self.name}")

    def overview(self) -> dict[str, Any]:
        """As a list of presets shows it."""
        row: dict[str, Any] = {"name": self.name, "what": self.title, "paper": self.paper}
        row |= {"seeds": self.seeds, "runs": 0, "rounds": 0, "data": "-"}
        if self.auction is None:
            experiment = self.described()
            row |= {"runs": self.cells, "rounds": experiment.rounds}
            row["data"] = ", ".join(dict.fromkeys(task.data for task in experiment.tasks))
        return row


def names() -> list[str]:
    """In the order of the papers, as `ORDER` of the folder has it."""
    return (files("fedmux.reproduce") / "presets" / "ORDER").read_text("utf-8").split()


@cache
def find(name: str) -> Preset:
    """The preset of this name."""
    if name not in names():
        raise FedmuxError(f'there is no preset "{name}"{closest(name, names())}; `fedmux reproduce list`')
    text = (files("fedmux.reproduce") / "presets" / f"{name}.toml").read_text("utf-8")
    return validated(Preset, {"name": name, **tomllib.loads(text)}, f"preset {name}")


def all_presets() -> Iterator[Preset]:
    return map(find, names())
