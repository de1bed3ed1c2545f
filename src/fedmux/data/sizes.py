"""How many training points each client holds: the `sizes` setting of a partition, and its draw."""

from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Discriminator, Field, PositiveInt, Tag

from fedmux.errors import FedmuxError
from fedmux.settings import Checked


def _ordered(limits: tuple[int, int]) -> tuple[int, int]:
    low, high = limits
    if low > high:
        raise ValueError(f"the lower end comes first: write [{high}, {low}], got [{low}, {high}]")
    return limits


Range = Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(_ordered)]


class TwoLevels(Checked):
    """Few clients with much data, many with little: the setting of [P1]."""

    low: Range = Field(description="smallest and largest number of points of a low-data client")
    high: Range = Field(description="smallest and largest number of points of a high-data client")
    high_share: float = Field(
        ge=0, le=1, description="share of clients with high data, drawn for each task; to the nearest count"
    )


def _form(value: object) -> str | None:
    """Which form of `sizes` a value takes, so that a mistake is reported once and not for every form."""
    if isinstance(value, bool):
        return None
    forms: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (str, "word"),
        (int, "count"),
        ((list, tuple), "range"),
        ((dict, TwoLevels), "levels"),
    )
    return next((form for kind, form in forms if isinstance(value, kind)), None)


Sizes = Annotated[
    Annotated[Literal["equal"], Tag("word")]
    | Annotated[PositiveInt, Tag("count")]
    | Annotated[Range, Tag("range")]
    | Annotated[TwoLevels, Tag("levels")],
    Discriminator(
        _form,
        custom_error_type="sizes",
        custom_error_message='sizes must be "equal", a count, [low, high], or {low, high, high_share}',
    ),
]


def draw_sizes(
    sizes: Literal["equal"] | int | tuple[int, int] | TwoLevels,
    *,
    points: int,
    holders: int,
    disjoint: bool,
    rng: np.random.Generator,
) -> np.ndarray:
    """The number of points of each holder, (holders,) int64; refuses what the pool cannot give."""
    drawn: np.ndarray
    if sizes == "equal":
        if holders > points:
            raise FedmuxError(
                f"partition: {holders} clients cannot share {points} points equally; "
                "set sizes to a count with disjoint = false, or take more data"
            )
        each, rest = divmod(points, holders)
        drawn = np.full(holders, each, dtype=np.int64)
        drawn[:rest] += 1
        return drawn
    if isinstance(sizes, TwoLevels):
        high = np.zeros(holders, dtype=bool)
        high[rng.permutation(holders)[: round(sizes.high_share * holders)]] = True
        ends = np.where(high[:, None], sizes.high, sizes.low)  # holders x 2
        drawn = rng.integers(ends[:, 0], ends[:, 1], endpoint=True)
    else:
        low, top = (sizes, sizes) if isinstance(sizes, int) else sizes
        drawn = rng.integers(low, top, size=holders, endpoint=True)
    total, largest = int(drawn.sum()), int(drawn.max())
    if disjoint and total > points:
        raise FedmuxError(
            f"partition: {holders} clients need {total} points in all but there are {points}; "
            "set disjoint = false, lower sizes, or take more data"
        )
    if largest > points:
        raise FedmuxError(
            f"partition: a client needs {largest} points but there are {points}; "
            "lower sizes or take more data"
        )
    return drawn
