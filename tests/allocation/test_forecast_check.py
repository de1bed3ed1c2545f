"""How far forecasts are off, in figures that can be checked by hand."""

import numpy as np
import pytest

from fedmux.allocation import Forecasts
from fedmux.allocation.forecast_check import Truth, compared

NAN = float("nan")


def test_norms_are_off_by_a_factor_and_cosines_by_a_difference():
    forecasts = Forecasts(
        norms=np.array([[2.0], [2.0], [1.0], [8.0], [5.0]]),
        cosines=np.array([[0.5], [0.0], [0.2], [0.0], [0.9]]),
        known=np.array([[True], [True], [False], [False], [True]]),
    )
    truth = Truth(
        norms=np.array([[1.0], [4.0], [1.0], [8.0], [NAN]]),
        cosines=np.array([[0.8], [0.0], [0.6], [0.0], [NAN]]),
        lengths=np.array([[1.0], [0.0], [3.0], [0.0], [NAN]]),
    )
    norm, cosine = compared(forecasts, truth, 0).values()
    assert (norm["pairs"], norm["known"]) == (4, 2)
    assert norm["factor_known"] == pytest.approx(2.0)
    assert norm["factor"] == pytest.approx(2.0 ** np.sqrt(0.5))
    logs = np.log([[2, 2, 1, 8], [1, 4, 1, 8]])
    assert norm["correlation"] == pytest.approx(np.corrcoef(logs)[0, 1])
    assert cosine["pairs"] == 2
    assert cosine["error"] == pytest.approx(np.sqrt((0.3**2 + 0.4**2) / 2))
    assert (cosine["forecast"], cosine["true"]) == pytest.approx((0.35, 0.7))


def test_what_cannot_be_compared_is_none():
    norm, cosine = compared(Forecasts(np.ones((3, 1))), Truth(np.full((3, 1), NAN)), 0).values()
    assert norm == {"pairs": 0, "known": 0, "factor": None, "factor_known": None, "correlation": None}
    assert cosine is None
    norm = compared(Forecasts(np.ones((3, 1))), Truth(np.array([[1.0], [2.0], [3.0]])), 0)["norm"]
    assert norm["known"] == 3 and norm["correlation"] is None  # all forecasts are the same


def test_what_is_left_of_an_update_is_its_distance_to_the_weighted_old_one():
    rng = np.random.default_rng(0)
    new, old, beta = rng.normal(size=(4, 7)), rng.normal(size=(4, 7)), rng.uniform(0, 2, (4, 1))
    norms, lengths = (np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (new, old))
    truth = Truth(norms, (new * old).sum(1, keepdims=True) / norms / lengths, lengths)
    assert truth.left(beta) == pytest.approx(np.linalg.norm(new - beta * old, axis=1, keepdims=True))
    assert truth.left(None) is norms
