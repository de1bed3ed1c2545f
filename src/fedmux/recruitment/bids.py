"""Where bids come from: a CSV file, or distributions that simulate them."""

import csv
import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from fedmux.errors import FedmuxError
from fedmux.population import Floats
from fedmux.settings import Checked


class _Range(Checked):
    low: float = Field(0.0, ge=0, description="smallest bid")
    high: float = Field(1.0, gt=0, description="largest bid")

    @model_validator(mode="after")
    def _ordered(self) -> "_Range":
        if self.low >= self.high:
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")
        return self


class Uniform(_Range):
    """All bids in a range are equally likely."""

    kind: Literal["uniform"] = Field("uniform", description="all bids in the range are equally likely")

    def draw(self, users: int, rng: np.random.Generator) -> Floats:
        return rng.uniform(self.low, self.high, users)

    def cdf(self, cost: float) -> float:
        return min(1.0, max(0.0, (cost - self.low) / (self.high - self.low)))


class Normal(_Range):
    """A normal distribution truncated at both ends."""

    kind: Literal["normal"] = Field("normal", description="a normal distribution, truncated to the range")
    mean: float = Field(description="mean before truncation")
    std: float = Field(gt=0, description="standard deviation before truncation")

    def draw(self, users: int, rng: np.random.Generator) -> Floats:
        from scipy.stats import truncnorm

        return truncnorm.rvs(*self._ends, loc=self.mean, scale=self.std, size=users, random_state=rng)

    def cdf(self, cost: float) -> float:
        from scipy.stats import truncnorm

        return float(truncnorm.cdf(cost, *self._ends, loc=self.mean, scale=self.std))

    @property
    def _ends(self) -> list[float]:
        """In standard deviations from the mean."""
        return [(end - self.mean) / self.std for end in (self.low, self.high)]


class Linear(Checked):
    """Density that grows linearly from 0: high times the square root of a uniform number."""

    kind: Literal["linear"] = Field("linear", description="density that grows linearly from 0")
    high: float = Field(1.0, gt=0, description="largest bid")

    def draw(self, users: int, rng: np.random.Generator) -> Floats:
        return self.high * np.sqrt(rng.random(users))

    def cdf(self, cost: float) -> float:
        return min(1.0, max(0.0, cost / self.high)) ** 2


class Exponential(Checked):
    """An exponential distribution."""

    kind: Literal["exponential"] = Field("exponential", description="exponential distribution")
    rate: float = Field(gt=0, description="inverse of the mean")

    def draw(self, users: int, rng: np.random.Generator) -> Floats:
        return rng.exponential(1 / self.rate, users)

    def cdf(self, cost: float) -> float:
        return -math.expm1(-self.rate * max(0.0, cost))


BidLaw = Annotated[Uniform | Normal | Linear | Exponential, Field(discriminator="kind")]


def read_bids(path: str | Path) -> tuple[list[str], list[str], Floats]:
    """(users, tasks, bids) from a CSV file with a header: a column per task, optionally one named `user`.

    An empty cell means no bid. FedmuxError names line and column.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = [(number, row) for number, row in enumerate(csv.reader(file), 1) if row]
    except FileNotFoundError:
        raise FedmuxError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FedmuxError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(lines) < 2:
        raise FedmuxError(f"{path}: needs a header with the tasks' names and a row for each user")
    header = [name.strip() for name in lines[0][1]]
    named = header[0].lower() == "user"
    tasks = header[1:] if named else header
    if not tasks or len(set(tasks)) < len(tasks) or "" in tasks:
        raise FedmuxError(f"{path}: the header must name each task once, got {', '.join(header)}")
    if not named and all(_is_number(name) for name in tasks):
        raise FedmuxError(f"{path}: the first line must name the tasks, but it holds numbers")
    users: dict[str, int] = {}  # with the line of each
    bids = np.full((len(lines) - 1, len(tasks)), np.nan)
    for index, (number, row) in enumerate(lines[1:]):
        if len(row) != len(header):
            raise FedmuxError(f"{path}: line {number} has {len(row)} columns, the header {len(header)}")
        user = row[0].strip() if named else str(index)
        if user in users:
            raise FedmuxError(
                f'{path}: line {number}: user "{user}" has bid in line {users[user]}; keep one of the two'
            )
        users[user] = number
        for column, cell in enumerate(row[1:] if named else row):
            if cell.strip():
                bids[index, column] = _bid(cell, f"{path}: line {number}, {tasks[column]}")
    return list(users), tasks, bids


def _bid(cell: str, where: str) -> float:
    if not _is_number(cell):
        raise FedmuxError(f'{where}: "{cell.strip()}" is not a number; leave it empty for no bid')
    value = float(cell)
    if not 0 <= value < np.inf:
        raise FedmuxError(f"{where}: a bid must be finite and at least 0, got {cell.strip()}")
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
