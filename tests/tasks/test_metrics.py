"""Metrics: equal to scikit-learn's and torch's, of ties and constants too; users' own; refusals."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference
from sklearn.dummy import DummyClassifier, DummyRegressor

from fedmux.runs.scale import KNOWN
from fedmux.tasks.metrics import METRICS, Metric, build_metric
from refusals import refused

TWO = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40)


def score(metric: Metric, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Over all points, as a fleet computes it."""
    values = metric(outputs, targets).double().numpy()
    if metric.whole is not None:
        return metric.whole(values)
    (mean,) = values.mean(1)
    return float(metric.finish(mean))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("outputs", [1, 3])
def test_scores_of_regression_are_scikit_learns(outputs: int) -> None:
    found, wanted = random(50, outputs), random(50, outputs, seed=1) + 100
    known = {
        "r2": reference.r2_score(wanted, found, multioutput="variance_weighted"),
        "mean-squared-error": reference.mean_squared_error(wanted, found),
        "root-mean-squared-error": reference.mean_squared_error(wanted, found) ** 0.5,
        "mean-absolute-error": reference.mean_absolute_error(wanted, found),
        "negative-squared-error": -reference.mean_squared_error(wanted, found),
    }
    for name, value in known.items():
        assert score(METRICS[name], found, wanted) == pytest.approx(value), name


def test_one_output_goes_with_targets_of_one_dimension() -> None:
    found, wanted = random(50, 1), random(50, seed=1)
    for name in ("r2", "mean-squared-error", "mean-absolute-error"):
        assert score(METRICS[name], found, wanted) == score(METRICS[name], found, wanted[:, None])


def test_scores_of_classification_are_the_references() -> None:
    logits, labels = random(60, 4), torch.arange(60) % 4
    assert score(METRICS["accuracy"], logits, labels) == pytest.approx(
        reference.accuracy_score(labels, logits.argmax(1))
    )
    surprise = torch.nn.functional.cross_entropy(logits, labels)
    assert score(METRICS["perplexity"], logits, labels) == pytest.approx(float(surprise.exp()))


@given(TWO)
@settings(max_examples=200, deadline=None)
def test_auc_is_scikit_learns_with_ties_as_without(points: list[tuple[int, bool]]) -> None:
    evidence, labels = (np.array(column) for column in zip(*points))
    logits = torch.stack([torch.zeros(len(points)), torch.tensor(evidence, dtype=torch.float32)], 1)
    found = score(METRICS["auc"], logits, torch.tensor(labels, dtype=torch.int64))
    if len({*labels.tolist()}) < 2:
        assert np.isnan(found)  # nothing to rank
    else:
        assert found == pytest.approx(reference.roc_auc_score(labels, evidence))


def test_a_constant_scores_what_scikit_learns_dummies_score() -> None:
    x, labels = np.zeros((40, 1)), np.array([0] * 25 + [1] * 10 + [2] * 5)
    values = np.random.default_rng(0).gamma(2.0, size=40)
    majority = DummyClassifier(strategy="most_frequent").fit(x, labels)
    assert METRICS["accuracy"].constant(labels) == majority.score(x, labels)
    shares = DummyClassifier(strategy="prior").fit(x, labels).predict_proba(x)
    assert METRICS["perplexity"].constant(labels) == pytest.approx(np.exp(reference.log_loss(labels, shares)))
    mean = DummyRegressor().fit(x, values).predict(x)
    median = DummyRegressor(strategy="median").fit(x, values).predict(x)
    known = {
        "r2": 0.0,
        "mean-squared-error": reference.mean_squared_error(values, mean),
        "root-mean-squared-error": reference.mean_squared_error(values, mean) ** 0.5,
        "mean-absolute-error": reference.mean_absolute_error(values, median),
        "negative-squared-error": -reference.mean_squared_error(values, mean),
        "auc": 0.5,
    }
    for name, value in known.items():
        assert METRICS[name].constant(values) == pytest.approx(value), name


def test_every_metric_has_a_scale_and_says_what_a_constant_scores() -> None:
    assert METRICS.keys() == KNOWN.keys()
    assert all(metric.constant is not None for metric in METRICS.values())


def test_r2_is_unknown_where_all_targets_are_the_same() -> None:
    assert np.isnan(score(METRICS["r2"], random(5, 1), torch.ones(5)))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_metrics.py").write_text(
        "def first(outputs, targets):\n    return outputs[:, 0]\n"
        "def averaged(outputs, targets):\n    return outputs.mean()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.mark.usefixtures("own")
def test_a_users_function_is_a_metric_by_its_mean() -> None:
    outputs = random(6, 4)
    found = score(build_metric("own_metrics:first"), outputs, torch.zeros(6))
    assert found == pytest.approx(float(outputs[:, 0].mean()))


@pytest.mark.usefixtures("own")
def test_a_users_function_that_averages_is_stopped() -> None:
    with refused(
        ('metric "own_metrics:averaged"', "()"), ("one value per point", "(6,)", 'reduction="none"')
    ):
        build_metric("own_metrics:averaged")(random(6, 4), torch.zeros(6))


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "where"),
    [
        ("auc", (6, 3), torch.zeros(6, dtype=torch.int64), ("auc", "two classes", "3")),
        ("auc", (6, 2), torch.zeros(6), ("auc", "labels", "float32")),
        ("perplexity", (6,), torch.zeros(6, dtype=torch.int64), ("perplexity", "(6,)")),
        ("mean-absolute-error", (6, 2), torch.zeros(6), ("mean-absolute-error", "(6, 2)", "(6,)")),
        ("r2", (6, 2), torch.zeros(6), ("r2", "(6, 2)")),
    ],
)
def test_a_metric_that_does_not_fit_the_task_names_the_shapes(
    name: str, outputs: tuple[int, ...], targets: torch.Tensor, where: tuple[str, ...]
) -> None:
    with refused(where[0], where[1:]):
        METRICS[name](random(*outputs), targets)


def test_an_unknown_metric_is_refused_with_the_known_ones() -> None:
    with refused('metric "f1"', ("accuracy, auc", "module:function")):
        build_metric("f1")
