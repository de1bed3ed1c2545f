"""A comparison of thousands of runs is started only by who says so, with what it would take in the line."""

import sys
from typing import Any

import pytest

from conftest import table
from fedmux.cli.finishing import agreed
from fedmux.comparison.design import Design
from fedmux.comparison.limits import check, fitting
from fedmux.distributed import limits
from fedmux.experiment import Experiment
from refusals import refused


def design(seeds: int, *vary: str, **changes: Any) -> Design:
    return Design.make(table(**changes), "test.toml", seeds=range(seeds), vary=vary)


def test_a_design_knows_its_size_without_listing_its_runs() -> None:
    axes = [f"task.batch_size={','.join(map(str, range(1, 101)))}"] * 6
    assert design(3, *axes).size == 3 * 100**6
    small = design(3, "rounds=1,2", "population.jobs=[2],[3]")
    assert small.size == len(small.cells) == 12


def test_thousands_of_runs_are_asked_about_with_their_number_and_hours() -> None:
    asked: list[str] = []

    def no(told: str) -> bool:
        asked.append(told)
        return False

    check([design(1000)], 0, no)
    assert asked == []
    with refused(("test.toml", "3,600 runs", "115 rounds"), ("60 hours", "2 at a time", "--yes")):
        check([design(1800, rounds=115), design(1800, rounds=115)], 2, no)
    assert len(asked) == 1
    check([design(1001)], 0, lambda told: True)


def test_more_at_a_time_than_the_machine_can_take_are_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "cores", lambda: 2)
    check([design(2)], 8)
    with refused("--parallel 9", "at most 8"):
        check([design(2)], 9)
    with refused("--parallel 3", "9 processes"):
        check([design(2, execution={"workers": 3})], 3)
    with refused("execution.workers = 9", "at most 8"):
        check([design(2, execution={"workers": 9})], 0)


def test_as_many_run_at_a_time_as_there_is_memory_for(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(limits, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(limits, "GROUP", tmp_path)
    experiment = Experiment(**table())
    for free, at_a_time in ((2_000_000, 4), (600_000, 2), (1000, 1)):
        (tmp_path / "meminfo").write_text(f"MemAvailable: {free} kB\n")
        assert fitting(experiment, 4) == at_a_time


@pytest.mark.parametrize(
    ("terminal", "answer", "starts"), [(True, "y", True), (True, "n", False), (False, "", False)]
)
def test_only_a_person_at_a_terminal_is_asked(
    monkeypatch: Any, terminal: bool, answer: str, starts: bool
) -> None:
    told = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr("typer.confirm", lambda text, err: told.append(text) or answer == "y")
    assert agreed(False)("3,600 runs") is (answer == "y")
    assert bool(told) is terminal
    assert agreed(True)("3,600 runs")
