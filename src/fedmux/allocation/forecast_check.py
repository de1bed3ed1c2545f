"""Forecasts of updates beside the truth: norms are off by a factor, cosines by a difference, task by task."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fedmux.allocation.lessons import Forecasts
from fedmux.population import Bools, Floats

What = Literal["norm", "cosine"]


@dataclass(frozen=True, eq=False)
class Truth:
    """What every pair would send in a round, beside what is kept of it (N x S, NaN: it sends nothing)."""

    norms: Floats  # ||G||
    cosines: Floats | None = None  # between G and h, 0 where there is no h; None: nothing is kept
    lengths: Floats | None = None  # ||h||

    def left(self, betas: Floats | None) -> Floats:
        """||G - beta h||; ||G|| without betas."""
        if betas is None or self.cosines is None or self.lengths is None:
            return self.norms
        length = betas * self.lengths
        square = self.norms**2 + length**2 - 2 * self.cosines * self.norms * length
        return np.sqrt(np.maximum(square, 0.0))

    def kept(self, s: int) -> Bools:
        """N: clients of which an update of the task is kept."""
        return np.zeros(len(self.norms), bool) if self.lengths is None else self.lengths[:, s] > 0


def seen(forecasts: Forecasts, s: int) -> Bools:
    """N: clients of which something has been seen in a task."""
    return np.ones(len(forecasts.norms), bool) if forecasts.known is None else forecasts.known[:, s]


def beside(forecasts: Forecasts, truth: Truth, what: What, s: int) -> tuple[Floats, Floats] | None:
    """Forecasts of a task and the truth (N each, NaN where there is none); None: not forecast."""
    if what == "norm":
        return forecasts.norms[:, s], truth.norms[:, s]
    if forecasts.cosines is None or truth.cosines is None:
        return None
    return forecasts.cosines[:, s], np.where(truth.kept(s), truth.cosines[:, s], np.nan)


def compared(forecasts: Forecasts, truth: Truth, s: int) -> dict[str, Any]:
    """How far the forecasts of a task are off, as JSON values; None where there is nothing to compare."""
    norms, cosines = (beside(forecasts, truth, what, s) for what in get_args(What))
    assert norms is not None
    return {
        "norm": _norms(*norms, seen(forecasts, s)),
        "cosine": None if cosines is None else _cosines(*cosines),
    }


def _norms(forecast: Floats, true: Floats, known: Bools) -> dict[str, float | int | None]:
    there = (forecast > 0) & (true > 0) & np.isfinite(forecast) & np.isfinite(true)  # NaN: no update
    known = known[there]
    logs, truth = np.log(forecast[there]), np.log(true[there])
    return {
        "pairs": len(logs),
        "known": int(known.sum()),
        "factor": _factor(logs - truth),
        "factor_known": _factor((logs - truth)[known]),
        "correlation": _correlation(logs, truth),
    }


def _cosines(forecast: Floats, true: Floats) -> dict[str, float | int | None]:
    there = np.isfinite(forecast) & np.isfinite(true)
    forecast, true = forecast[there], true[there]
    return {
        "pairs": len(true),
        "error": root_mean_square(forecast - true),
        "forecast": float(forecast.mean()) if len(true) else None,
        "true": float(true.mean()) if len(true) else None,
    }


def _factor(logs: Floats) -> float | None:
    """1: exact; 1.3: usually 1.3 times too large or too small."""
    error = root_mean_square(logs)
    return None if error is None else math.exp(error)


def _correlation(one: Floats, other: Floats) -> float | None:
    """None where one of them does not vary."""
    if len(one) < 2 or np.ptp(one) < 1e-9 or np.ptp(other) < 1e-9:
        return None
    return float(np.corrcoef(one, other)[0, 1])


def root_mean_square(values: Floats) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) else None
