"""Releases outlive the server that asked for them; the operator hears of a failure at once."""

from pathlib import Path

import numpy as np

from fedmux.flower.journal import FlowerJournal
from fedmux.runs.layout import ALLOCATION
from fedmux.runs.rounds import Failure


def test_releases_are_counted_on_over_restarts(tmp_path: Path) -> None:
    file = tmp_path / "releases.npy"
    first = FlowerJournal(3, 2, file)
    first.release(np.array([0, 0, 2]), np.array([0, 1, 1]))
    assert np.load(file).tolist() == [[1, 1], [0, 0], [0, 1]]
    second = FlowerJournal(3, 2, file)
    second.release(np.array([0]), np.array([1]))
    assert np.load(file).tolist() == second.releases.tolist() == [[1, 2], [0, 0], [0, 1]]


def test_failures_are_heard_of_at_once_and_kept_for_the_round() -> None:
    heard: list[Failure] = []
    journal, failure = FlowerJournal(1, 1, failed=heard.append), Failure("0", "a", "train.multi", "late", "")
    journal.fail(failure)
    assert heard == journal.take_failures() == [failure]


def test_a_run_that_an_older_version_began_starts_from_its_jobs(tmp_path) -> None:
    jobs = np.zeros(3, ALLOCATION)
    jobs["client"], jobs["task"] = [0, 0, 1], [1, 1, 0]
    (tmp_path / "allocation.bin").write_bytes(jobs.tobytes())
    journal = FlowerJournal(2, 2, tmp_path / "releases.npy")
    assert journal.releases.tolist() == [[0, 2], [1, 0]]
