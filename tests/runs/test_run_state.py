"""The state of a run: it is true whatever its process does, and says what continues it."""

import json
import os
import platform
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import fedmux
from commands import fedmux as command
from commands import small_experiment, start, wait_until
from conftest import experiment_of, interrupted_after, table
from fedmux.comparison.design import Design
from fedmux.errors import FedmuxError
from fedmux.runs import pulse
from fedmux.runs.history import History
from fedmux.runs.layout import STATE
from fedmux.runs.rounds import Round
from fedmux.runs.state import FAILED, FINISHED, INTERRUPTED, RUNNING, RunState, run_state
from fedmux.runs.survey import Survey

LONG = ("--set", "rounds=200", "--set", "evaluation.every=100")


def test_a_run_is_running_while_it_is_trained_and_finished_after_it(tmp_path: Path) -> None:
    seen: list[str] = []

    def look(entry: Round) -> None:
        state = run_state(tmp_path / "run")
        assert state.seen is not None
        assert time.time() - state.seen < 60
        seen.append(Survey.of(tmp_path / "run").progress.rpartition(",")[0])

    run = fedmux.run(experiment_of(), tmp_path / "run", observers=[look])
    assert seen == [f"running, round {number + 1} of 4" for number in range(5)]
    assert run.state == RunState(FINISHED)
    assert json.loads((tmp_path / "run" / STATE).read_text())["state"] == FINISHED


def test_signs_of_life_come_through_a_long_round_and_survive_a_full_disk(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pulse, "BEAT", 0.01)
    file, touched = tmp_path / "run" / STATE, []

    def look(entry: Round) -> None:
        if entry.round == 1:
            os.utime(file, (1, 1))
            wait_until(lambda: file.stat().st_mtime > 1)  # no round ends meanwhile
            touched.append(entry.round)
        if entry.round == 2:
            file.unlink()

    fedmux.run(experiment_of(), tmp_path / "run", observers=[look])
    assert touched == [1]


def test_an_exception_is_the_reason_and_the_run_can_be_continued(tmp_path: Path) -> None:
    def fail(entry: Round) -> None:
        if entry.round == 2:
            raise RuntimeError("the rack is on fire\nand more")

    with pytest.raises(RuntimeError):
        fedmux.run(experiment_of(), tmp_path / "run", observers=[fail])
    state = fedmux.Run(tmp_path / "run").state
    assert (state.name, state.reason) == (FAILED, "RuntimeError: the rack is on fire")
    assert state.again == f"`fedmux resume {tmp_path / 'run'}` continues it"
    shown = command("show", "run", cwd=tmp_path).done().out
    assert "run: failed after round 2 of 4: RuntimeError: the rack is on fire" in shown
    assert "`fedmux resume run` continues it" in shown
    assert History.read(tmp_path / "run").reason == state.reason
    command("resume", "run", "-q", cwd=tmp_path).done()
    assert run_state(tmp_path / "run").name == FINISHED


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGTERM, "stopped by Ctrl-C or SIGTERM"),
        (signal.SIGINT, "stopped by Ctrl-C or SIGTERM"),
        (signal.SIGKILL, "it was killed, or its machine went down"),
    ],
)
def test_show_of_a_run_at_work_says_so_and_later_how_it_was_stopped(
    tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    (tmp_path / "experiment.toml").write_text(small_experiment(rounds=8, checkpoint_every=2))
    process = start("run", "experiment.toml", "-q", "-o", "runs/long", *LONG, cwd=tmp_path)
    log = tmp_path / "runs/long/metrics.jsonl"
    wait_until(lambda: log.exists() and log.stat().st_size)
    shown = command("show", "runs/long", cwd=tmp_path).done().out
    assert shown.startswith("runs/long: running, round ")
    assert " of 200, last sign of life " in shown
    assert "fedmux resume" not in shown
    (row,) = json.loads(command("list", "--json", cwd=tmp_path).done().out)
    assert (row["state"], row["again"]) == (RUNNING, None)
    assert "another process" in command("resume", "runs/long", "-q", cwd=tmp_path).refusal()
    process.send(number)
    process.wait()
    (row,) = json.loads(command("list", "--json", cwd=tmp_path).done().out)
    assert (row["state"], row["reason"]) == (INTERRUPTED, reason)
    assert "`fedmux resume runs/long` continues it" in command("show", "runs/long", cwd=tmp_path).done().out


@pytest.mark.parametrize(
    ("told", "age", "state"),
    [
        ({"state": RUNNING, "host": "elsewhere"}, 0, RUNNING),
        ({"state": RUNNING, "host": "elsewhere"}, 3600, INTERRUPTED),
        ({"state": RUNNING, "host": platform.node()}, 0, INTERRUPTED),
        ({"state": FAILED, "reason": "no luck"}, 0, FAILED),
        ({"state": FAILED, "reason": ["no", "text"]}, 0, FAILED),
        ({"state": "odd"}, 0, INTERRUPTED),
        ([], 0, INTERRUPTED),
        (None, 0, INTERRUPTED),
    ],
)
def test_where_the_lock_is_not_held_the_last_word_and_its_age_decide(
    tmp_path: Path, told: Any, age: float, state: str
) -> None:
    if told is not None:
        (tmp_path / STATE).write_text(json.dumps(told))
        os.utime(tmp_path / STATE, (time.time() - age,) * 2)
    (tmp_path / "lock").touch()
    assert run_state(tmp_path).name == state


def test_a_paused_task_is_shown_with_its_reason(tmp_path: Path) -> None:
    changes = {"rounds": 6, "stop": {"divergence": "pause"}}
    whole = table(**changes)
    whole["task"][0]["learning_rate"] = 1e30
    with interrupted_after(4):
        fedmux.run(fedmux.Experiment.model_validate(whole), tmp_path / "run", notice=lambda line: None)
    shown = command("show", "run", cwd=tmp_path).done().out
    assert 'task "a" is paused since round 1, it has diverged: ' in shown
    (row,) = json.loads(command("list", ".", "--json", cwd=tmp_path).done().out)
    assert row["paused"][0] in shown


def test_a_run_of_real_clients_is_continued_as_it_was_started(tmp_path: Path) -> None:
    with interrupted_after(2):
        fedmux.run(experiment_of(), tmp_path / "run")
    (tmp_path / "run" / "clients.json").write_text("{}")
    for again, hint in (
        (None, "fedmux flower up "),
        ("fedmux flower up e.toml --app my-app", "--app my-app"),
    ):
        told = json.loads((tmp_path / "run" / STATE).read_text())
        (tmp_path / "run" / STATE).write_text(json.dumps({**told, "again": again}))
        for words in (
            command("show", "run", cwd=tmp_path).done().out,
            command("resume", "run", cwd=tmp_path).refusal(),
        ):
            assert hint in words
            assert "fedmux resume" not in words
    with pytest.raises(FedmuxError, match="--app my-app"):
        _ = fedmux.Run(tmp_path / "run").summary


def test_a_comparison_says_what_became_of_each_of_its_runs(tmp_path: Path) -> None:
    comparison = Design.make(table(), "test", methods=["random"], seeds=[0, 1, 2]).create(tmp_path / "c")
    first, second, _ = comparison.cells
    with interrupted_after(2):
        fedmux.run(experiment_of(), comparison.folder(first))
    comparison.log(second).write_text("fedmux: no such data\n")
    shown = command("show", "c", cwd=tmp_path).done().out
    assert "random-seed-0: interrupted after round 2 of 4: stopped by" in shown
    assert "random-seed-1: failed: no such data" in shown
    assert "not begun: 1 of 3 runs" in shown
    assert "`fedmux resume c` continues it" in shown
