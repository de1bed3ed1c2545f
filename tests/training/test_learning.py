"""What a round teaches: whose losses, on which scale, and what a user may ask for."""

from pathlib import Path

import numpy as np
from pytest import MonkeyPatch

import fedmux
from conftest import experiment_of, table, train
from fedmux.aggregation import Aggregator, Unbiased, Updates
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced

SEEN: list[float] = []


class SeesLosses(Unbiased):
    def add(self, updates: Updates) -> None:
        assert updates.losses is not None
        SEEN.extend(updates.losses.tolist())
        super().add(updates)


class AsksHalf(fedmux.Method):
    def allocator(self) -> fedmux.Allocator:
        return VarianceReduced("loss", ScoreOptions(report_share=0.5))

    def aggregator(self) -> Aggregator:
        return SeesLosses()


def test_an_aggregator_sees_the_losses_of_those_that_had_reported_them_before(tmp_path: Path) -> None:
    SEEN.clear()
    train(experiment_of(method=AsksHalf()), tmp_path / "run", notice=lambda line: None)
    assert min(SEEN) > 0


def test_partial_reports_are_on_one_scale_with_noised_updates(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    heard: list[np.ndarray] = []  # scores of those asked, then of those that trained, in turns
    remember = VarianceReduced._remember

    def listens(self: VarianceReduced, reported: np.ndarray) -> None:
        heard.append(reported[~np.isnan(reported)])
        remember(self, reported)

    monkeypatch.setattr(VarianceReduced, "_remember", listens)
    tasks = [{**task, "privacy": {"clip": 0.2, "noise": 1.0}} for task in table()["task"]]
    experiment = experiment_of(method={"name": "mmfl-gvr", "report_share": 0.3}, task=tasks)
    train(experiment, tmp_path / "run", notice=lambda line: None)
    asked, trained = (np.median(np.concatenate(heard[turn::2])) for turn in (0, 1))
    assert trained < 3 * asked
