"""What scores mean: units, directions, progress; configurations of any kind are read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmux.runs.scale import ACCURACIES, CONSTANT, FIRST, KNOWN, Scale, scale_of, scales_of

scores = st.floats(-1e6, 1e6)


@given(scores)
def test_progress_of_an_accuracy_is_the_accuracy(score: float) -> None:
    assert ACCURACIES.progress(score, 0.0) == score


@given(scores, scores, scores.filter(bool))
def test_progress_is_0_at_the_start_and_1_at_the_target_whichever_way_is_better(
    start: float, score: float, way: float
) -> None:
    scale = Scale("own", start=FIRST, target=start + way)
    if scale.target == start:  # `way` is lost in rounding
        assert scale.progress(score, start) is None
        return
    assert scale.progress(start, start) == 0
    assert scale.progress(scale.target, start) == 1
    ahead = scale.progress(start + way / 2, start)
    assert (ahead is not None and ahead == pytest.approx(0.5, abs=1e-3)) or abs(way) < 1e-3


def test_without_a_target_there_is_no_progress() -> None:
    assert scale_of("my:dice").progress(0.7, 0.1) is None


@pytest.mark.parametrize(
    ("metric", "loss", "name", "unit", "better", "start", "target"),
    [
        (None, "cross-entropy", "accuracy", "%", "higher", 0.0, 1.0),
        (None, "squared-error", "mean-squared-error", "", "lower", FIRST, 0.0),
        ("perplexity", None, "perplexity", "", "lower", FIRST, 1.0),
        (
            {"name": "mean-absolute-error", "unit": "°C"},
            None,
            "mean-absolute-error",
            "°C",
            "lower",
            FIRST,
            0.0,
        ),
        ({"name": "accuracy", "start": CONSTANT}, None, "accuracy", "%", "higher", CONSTANT, 1.0),
        ({"name": "my.metrics:dice", "unit": "%"}, None, "dice", "%", "higher", FIRST, 1.0),
        (
            {"name": "m:gap", "unit": "mm", "better": "lower", "target": 2.0},
            None,
            "gap",
            "mm",
            "lower",
            FIRST,
            2.0,
        ),
        ({"name": "m:gap", "label": "distance"}, None, "distance", "", "higher", FIRST, None),
    ],
)
def test_a_configuration_says_what_scores_mean(
    metric: Any, loss: str | None, name: str, unit: str, better: Any, start: Any, target: float | None
) -> None:
    assert scale_of(metric, loss) == Scale(name, unit, better, start, target)


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=6),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(["name", "unit"]), inside),
    max_leaves=6,
)


@given(anything)
def test_a_damaged_configuration_is_read_all_the_same(value: Any) -> None:
    assert scale_of(value).show(0.5)
    assert all(scale.show(0.5) for scale in scales_of({"task": value}).values())
    scales_of({"task": [{"name": "a", "metric": value, "loss": value}]})


def test_scores_are_shown_in_their_unit() -> None:
    years = Scale("mean-absolute-error", "years", "lower")
    assert [ACCURACIES.show(0.5), ACCURACIES.show(None)] == ["50.0%", "-"]
    assert [years.show(12.3456), years.show(12.3456, unit=False)] == ["12.35 years", "12.35"]
    assert [KNOWN["auc"].show(0.91234), years.title, ACCURACIES.title] == [
        "0.9123",
        "mean-absolute-error (years)",
        "accuracy",
    ]
    assert [ACCURACIES.change(0.55, 0.5), years.change(3.0, 5.0)] == ["+5.0", "-2"]
