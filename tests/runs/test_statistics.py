"""Statistics over seeds: what is paired, what is undefined, and that they equal SciPy's."""

import numpy as np
import pytest
from scipy import stats

from fedmux.runs.statistics import FINAL_ROUNDS, deviation, final, mean, paired_difference, ratios

MINE = {0: 0.5, 1: 0.6, 2: 0.55, 7: 0.1}
BASE = {2: 0.9, 1: 0.7, 0: 0.8, 5: 0.3}


def test_differences_are_paired_by_seed_and_their_interval_is_that_of_a_t_test() -> None:
    difference, half_width = paired_difference(MINE, BASE)
    interval = stats.ttest_rel([0.5, 0.6, 0.55], [0.8, 0.7, 0.9]).confidence_interval(0.95)
    assert difference is not None and half_width is not None
    assert (difference - half_width, difference + half_width) == pytest.approx((interval.low, interval.high))


def test_ratios_are_paired_by_seed_and_need_a_baseline_above_zero() -> None:
    assert ratios(MINE, BASE) == [0.5 / 0.8, 0.6 / 0.7, 0.55 / 0.9]
    assert ratios({0: -2.0, 1: 0.5, 2: 1.0}, {0: -1.0, 1: 0.0, 2: 2.0}) == [0.5]


def test_what_is_undefined_is_none() -> None:
    assert (mean([]), deviation([0.3]), paired_difference(MINE, {})) == (None, None, (None, None))
    assert paired_difference({0: 0.5}, {0: 0.25}) == (0.25, None)
    assert deviation([0.1, 0.3]) == pytest.approx(np.sqrt(0.02))


def test_final_is_the_mean_of_the_last_rounds_without_the_state_before_training() -> None:
    curve = [(round, round / 100) for round in range(21)]
    assert final(curve, 20) == pytest.approx(np.mean(range(21 - FINAL_ROUNDS, 21)) / 100)
    assert final(curve[:3], 2) == pytest.approx(0.015)
    assert final(curve[:6], 20) == 0.05  # it ended before the last rounds
    assert final([], 20) is None
