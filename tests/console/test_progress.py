"""What a person sees while a run goes on: on a terminal of any width, and where there is none."""

import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import fedmux
from conftest import table
from fedmux.console.progress import BLOCKS, RoundProgress, Sparkline
from fedmux.runs.rounds import Round, TaskRound

NAMES = ("clothes", "digits", "a-name-that-is-longer-than-its-column")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes only when the test says so."""
    now = [100.0]
    monkeypatch.setattr("fedmux.console.progress.time.monotonic", lambda: now[0])
    return now


def metrics(number: int, **more: Any) -> Round:
    work = {"jobs": number % 7, "uploads": number % 5} if number else {}
    tasks = {
        name: TaskRound(score := 1 - 0.9 * math.exp(-number / (10 + 5 * i)), score, loss=1.0, **work)
        for i, name in enumerate(NAMES)
    }
    return Round(number, tasks, **more)


def drawn(progress: RoundProgress, width: int) -> list[str]:
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True)
    console.print(progress)
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_a_line_for_each_task_and_fits(width: int, clock: list[float]) -> None:
    progress = RoundProgress(60)
    for number in range(31):
        clock[0] += 0.5
        progress(metrics(number, clients=118, dropped=2))
    line, head, *tasks = drawn(progress, width)
    assert line == "round 30/60  ━━━━━━━━────────  2.0 rounds/s, 0:15 left, 118 clients, 2 dropped"
    assert head.split() == ["task", "accuracy", "change", "jobs", "uploads", "clients", "over", "rounds"]
    assert tasks[0].split()[:5] == ["clothes", "95.5%", "+0.5", "2", "0"]
    assert tasks[1].split()[:2] == ["digits", "87.8%"]
    assert tasks[2].startswith("a-name-that-is-long…")
    assert len(tasks) == 3
    for task in tasks:
        curve = task.split()[-1]
        assert (curve[0], curve[-1]) == (BLOCKS[0], BLOCKS[-1])
        assert len(curve) == (31 if width == 120 else 14)
        assert list(curve) == sorted(curve)
    assert max(len(text) for text in (line, head, *tasks)) <= width


def test_the_table_says_who_trains(tmp_path: Path) -> None:
    progress = RoundProgress(3, folder=tmp_path / "run")
    run = fedmux.run(fedmux.Experiment(**table(rounds=3)), tmp_path / "run", observers=[progress])
    _, _, *tasks = drawn(progress, 120)
    last = run.allocation[run.allocation["round"] == 3]
    for number, line in enumerate(tasks):
        clients = last["client"][last["task"] == number].tolist()
        assert " ".join(map(str, clients[:4])) in line
        assert ("…" in line) == (len(clients) > 4)


def test_slow_rounds_are_told_in_seconds(clock: list[float]) -> None:
    progress = RoundProgress(2000)
    progress(metrics(0))
    clock[0] += 9
    progress(metrics(2))
    assert drawn(progress, 80)[0].endswith("4.5 s/round, 2:29:51 left")


def test_a_resumed_run_counts_its_own_rounds_only(clock: list[float]) -> None:
    progress = RoundProgress(60, done=40)
    assert drawn(progress, 80) == ["round 40/60  ━━━━━━━━━━──────"]
    progress(metrics(41))
    clock[0] += 1
    progress(metrics(43))
    assert "2.0 rounds/s, 0:08 left" in drawn(progress, 80)[0]


def test_a_round_without_evaluation_keeps_the_last_accuracy(clock: list[float]) -> None:
    progress = RoundProgress(10)
    progress(metrics(1))
    later = metrics(2)
    for figures in later.tasks.values():
        figures.score = figures.progress = figures.loss = None
    progress(later)
    assert drawn(progress, 80)[2].split()[:4] == ["clothes", "18.6%", "2", "2"]


def test_one_line_is_left_at_the_end(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(
        "fedmux.console.progress.progress_console", Console(file=stderr, force_terminal=True, width=80)
    )
    with RoundProgress(3) as progress:
        for number in range(4):
            clock[0] += 20
            progress(metrics(number))
    assert drawn(progress, 80) == ["round 3/3  ━━━━━━━━━━━━━━━━  1:00"]
    assert "1:00" in stderr.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("fedmux.console.progress.progress_console", Console(file=stderr, width=120))
    with RoundProgress(10) as progress:
        for number in range(11):
            clock[0] += 2
            progress(metrics(number))
    numbers = [line.split()[1] for line in stderr.getvalue().splitlines()]
    assert numbers == ["0/10", "3/10", "6/10", "9/10", "10/10"]
    assert "clothes 66.9%" in stderr.getvalue().splitlines()[-1]


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("fedmux.console.progress.progress_console", Console(file=stderr, force_terminal=True))
    with RoundProgress(1, quiet=True) as progress:
        progress(metrics(1))
    assert stderr.getvalue() == ""


def test_a_round_draws_nothing_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rounds a second there are, the table is drawn a few times a second."""
    monkeypatch.setattr(
        "fedmux.console.progress.progress_console", Console(file=io.StringIO(), force_terminal=True)
    )
    progress = RoundProgress(1000)
    monkeypatch.setattr(progress, "_tasks", lambda: pytest.fail("drawn"))
    for number in range(1000):
        progress(metrics(number))
    assert progress.screen.refresh_per_second <= 8


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 10, ""),
        ([0.5], 10, "▁"),
        ([0.3, 0.3, 0.3], 10, "▁▁▁"),
        ([0.0, 0.5, 1.0], 10, "▁▅█"),
        ([0.0, 9.0, 1.0, 9.0, 7.0], 2, "█▁"),  # the second and the last
        (list(range(80)), 8, "▁▂▃▄▅▆▇█"),
    ],
)
def test_a_curve_in_one_line(values: list[float], width: int, expected: str) -> None:
    assert Sparkline(values).drawn(width, BLOCKS) == expected


def test_a_terminal_without_blocks_gets_letters() -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=raw, force_terminal=True, width=40)
    console.print(Sparkline([0.0, 1.0]))
    raw.flush()
    assert raw.buffer.getvalue().decode("ascii").strip() == "_@"
