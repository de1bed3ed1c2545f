"""Final scores, and statistics over the seeds of a method: the only place that computes them.

Figures come by seed. What is set against a baseline is paired: each run with the baseline's of the same seed.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

FINAL_ROUNDS = 10  # final figures are means over the evaluations of this many last rounds


def final(curve: Sequence[tuple[int, float]], rounds: int) -> float | None:
    """Of (round, value): the mean over the last rounds, else the last value; None if there is none."""
    last = [score for number, score in curve if number > max(0, rounds - FINAL_ROUNDS)]
    return mean(last or [score for _, score in curve[-1:]])


def mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None


def deviation(values: Iterable[float]) -> float | None:
    """Standard deviation of a sample; None for fewer than two values."""
    found = list(values)
    return float(np.std(found, ddof=1)) if len(found) > 1 else None


def ratios(mine: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    """Paired by seed; a baseline that is not above zero has no ratio."""
    return [mine[seed] / baseline[seed] for seed in mine if seed in baseline and baseline[seed] > 0]


def paired_difference(
    mine: Mapping[int, float], baseline: Mapping[int, float]
) -> tuple[float | None, float | None]:
    """Mean difference and half the width of its 95 % confidence interval (Student's t); None if undefined."""
    differences = [mine[seed] - baseline[seed] for seed in mine if seed in baseline]
    spread = deviation(differences)
    if spread is None:
        return mean(differences), None
    from scipy.stats import t

    error = spread / np.sqrt(len(differences))
    return mean(differences), float(t.ppf(0.975, len(differences) - 1) * error)
