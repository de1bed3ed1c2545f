"""More processes than pay, or than there is memory for, are refused before one is started."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import experiment_of
from fedmux.data import from_arrays
from fedmux.data.footprint import footprint
from fedmux.data.sources import load
from fedmux.distributed import limits
from fedmux.training.limits import check, need
from refusals import refused

GB = 10**9


@pytest.fixture
def machine(monkeypatch: Any, tmp_path: Path) -> Path:
    """Of two cores and 8 GB, in no container."""
    monkeypatch.setattr(limits, "cores", lambda: 2)
    monkeypatch.setattr(limits, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(limits, "GROUP", tmp_path)
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {8 * GB // 1024} kB\n")
    return tmp_path


def test_four_processes_a_core_are_enough(machine: Path) -> None:
    limits.check_number("--parallel 8", 8)
    with refused("--parallel 9", ("2 cores", "at most 8")):
        limits.check_number("--parallel 9", 9)


def test_the_estimate_is_told_with_what_is_free_and_what_would_fit(machine: Path) -> None:
    limits.check_memory("workers", 4, 2 * GB - 1024)
    with refused("execution.workers = 5", ("2.0 GB", "10.0 GB", "8.0 GB", "at most 4")):
        limits.check_memory("execution.workers = 5", 5, 2 * GB - 1024)
    with refused("this run", ("9.0 GB", "8.0 GB", "fewer clients")):
        limits.check_memory("this run", 1, 9 * GB)


def test_a_container_s_limit_counts(machine: Path) -> None:
    (machine / "memory.max").write_text(f"{3 * GB}\n")
    (machine / "memory.current").write_text(f"{GB}\n")
    assert limits.available() == 2 * GB
    (machine / "memory.max").write_text("max\n")
    assert limits.available() == pytest.approx(8 * GB, abs=1024)


def test_where_the_system_does_not_say_nothing_is_refused(machine: Path) -> None:
    (machine / "meminfo").unlink()
    limits.check_memory("this run", 1, 10**15)


def test_a_run_that_is_too_large_is_refused(machine: Path) -> None:
    check(experiment_of())
    check(experiment_of(execution={"workers": 8}))
    with refused("execution.workers = 9", "at most 8"):
        check(experiment_of(execution={"workers": 9}))
    (machine / "meminfo").write_text(f"MemAvailable: {GB // 1024} kB\n")
    with refused("execution.workers = 8", ("8 processes", "1.0 GB", "at most 3")):
        check(experiment_of(execution={"workers": 8}))
    with refused("this run", "fewer clients"):
        check(experiment_of(population={"clients": 10**8}))


def test_the_need_grows_with_the_data_and_the_clients() -> None:
    small, large = (from_arrays(np.zeros((n, 100)), np.zeros(n)) for n in (100, 10_000))
    task = experiment_of().tasks[0]
    needs = [need(experiment_of(task=[{**task.model_dump(), "data": data}])) for data in (small, large)]
    assert needs[1] - needs[0] == footprint(large) - footprint(small)
    assert footprint(large) == pytest.approx(8 * 10_000 * 101, rel=0.01)  # as it is, and as tensors
    more = experiment_of(population={"clients": 10**6})
    assert need(more) - need(experiment_of()) == pytest.approx(64 * 2 * 10**6, rel=0.01)


def test_the_size_of_a_named_set_or_a_file_is_known_without_reading_it(tmp_path: Path) -> None:
    data = load("fashion-mnist-sample")
    assert footprint("fashion-mnist-sample") == 5 * (data.train_x.size + data.test_x.size)
    np.savez(tmp_path / "mine.npz", train_x=np.zeros((50, 3)), train_y=np.zeros(50))
    assert footprint(str(tmp_path / "mine.npz")) == 5 * 200
    assert footprint("nosuch") == footprint(str(tmp_path / "nosuch.npz")) == footprint(lambda: None) == 0
