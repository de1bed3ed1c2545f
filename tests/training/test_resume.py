"""Whatever ends a run, resuming it ends bit for bit where the uninterrupted run does."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from commands import fedmux, small_experiment, start, touch_number
from conftest import METHODS, ONE_TASK, experiment_of, files, interrupted_after
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.runs.reading import Run
from fedmux.runs.writing import RunFolder
from fedmux.training.running import resume as go_on
from fedmux.training.running import run as train
from fedmux.training.running import to_resume
from refusals import refused, refuses

EXPERIMENT = small_experiment(rounds=8, checkpoint_every=2)
# Long enough for a signal from outside to arrive in time.
LONG = ["--set", "rounds=60"]
# Models so small that the metrics log outgrows every other file.
TINY = ["--set", "task.data=digits", "--set", "task.model_options={hidden=[2]}"]


@dataclass(frozen=True)
class Reference:
    """The uninterrupted run."""

    outcome: dict[str, bytes]
    names: set[str]  # of all its files
    writes: list[str]  # what it did to the disk, step by step

    def step(self, text: str) -> int:
        """The number of the first step that is described so."""
        return next(number for number, write in enumerate(self.writes) if text in write)

    def reached_by(self, folder: Path) -> bool:
        """Checkpoints go when all is done; of a run that is killed in that moment some are left."""
        left = {name for name in names(folder) if not name.startswith("checkpoints")}
        return files(folder) == self.outcome and left == self.names


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Reference]:
    """The uninterrupted run with these arguments; trained once."""

    @cache
    def of(*arguments: str) -> Reference:
        here = tmp_path_factory.mktemp("reference")
        (here / "experiment.toml").write_text(EXPERIMENT)
        events = here.with_suffix(".events")
        fedmux("run", "experiment.toml", "-q", "-o", "run", *arguments, cwd=here, events=events).done()
        return Reference(files(here / "run"), names(here / "run"), events.read_text().splitlines())

    return of


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    return tmp_path


def begin(here: Path, *arguments: str, **conditions):
    return fedmux("run", "experiment.toml", "-q", "-o", "run", *arguments, cwd=here, **conditions)


def resume(here: Path, **conditions):
    return fedmux("resume", "run", "-q", cwd=here, **conditions)


def killed(here: Path, step: int) -> Path:
    assert begin(here, meet=signal.SIGKILL, at=step).code == -signal.SIGKILL
    return here / "run"


def finish(here: Path, *arguments: str) -> str:
    """Resume, or begin again where the run had not begun; what it said."""
    if (here / "run" / "experiment.toml").exists():
        ended = resume(here)
    else:
        refusal = resume(here).refusal() if (here / "run").exists() else "run: not there"
        assert refusal.startswith("run: ")
        ended = begin(here, *arguments)
    assert (ended.code, ended.out) == (0, ""), ended
    return ended.err


@pytest.mark.parametrize("part", range(8))
def test_a_run_killed_at_any_of_its_writes_ends_the_same(here, reference, part):
    """Every step that touches the disk once; a third of the runs are killed again while they resume."""
    expected = reference()
    rng = random.Random(part)
    for step in range(part, len(expected.writes), 8):
        run = killed(here, step)
        if step % 3 == 0 and (run / "experiment.toml").exists():
            resume(here, meet=signal.SIGKILL, at=rng.randrange(20))
        assert finish(here) == "", expected.writes[step]
        assert expected.reached_by(run), expected.writes[step]
        shutil.rmtree(run)


def test_the_writes_at_which_runs_are_killed_are_those_of_a_run(reference):
    writes = reference().writes
    assert len(writes) > 50
    for step in ("checkpoints/.round-000004", "metrics.jsonl", "models/", "summary.json", "population.npz"):
        assert any(step in write for write in writes)


@pytest.mark.parametrize("part", range(2))
def test_a_run_killed_at_a_random_time_ends_the_same(here, reference, part):
    rng = random.Random(part)
    hits = 0
    for _ in range(6):
        process = start("run", "experiment.toml", "-q", "-o", "run", cwd=here)
        time.sleep(rng.uniform(0.01, 0.12))
        process.send(signal.SIGKILL)
        hits += process.wait().code == -signal.SIGKILL
        assert finish(here) == ""
        assert reference().reached_by(here / "run")
        shutil.rmtree(here / "run")
    assert hits


@pytest.mark.parametrize("lines", [1, 8, 20])
def test_a_process_of_its_own_killed_between_two_rounds_ends_the_same(here, reference, lines):
    command = [sys.executable, "-m", "fedmux", "run", "experiment.toml", "-q", "-o", "run", *LONG]
    with subprocess.Popen(command, cwd=here) as process:
        metrics = here / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines):
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (here / "run" / "summary.json").exists()
    assert finish(here) == ""
    assert reference(*LONG).reached_by(here / "run")


@pytest.mark.parametrize(
    ("arguments", "limits", "torn"),
    [
        ([], [200_000, 100_000, 10_000], ".round-000002.safetensors"),
        (TINY, range(150, 8_000, 900), "metrics.jsonl"),
    ],
)
def test_a_run_killed_in_the_middle_of_a_write_ends_the_same(here, reference, arguments, limits, torn):
    """The process dies as a file reaches a size: half an archive, half a checkpoint, half a line of a log."""
    found = set()
    for limit in limits:
        ended = begin(here, *arguments, file_limit=limit, die_at_limit=True)
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGXFSZ
        found |= {path.name for path in (here / "run").rglob("*") if path.stat().st_size == limit}
        assert finish(here, *arguments) == ""
        assert reference(*arguments).reached_by(here / "run"), limit
        shutil.rmtree(here / "run")
    assert any(name.startswith(torn) for name in found)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, "") for name in METHODS),
        ("mifa", ', storage = "disk"'),
        ("scaffold", ', storage = "disk"'),
        ("fedstale", ", rank = 3"),
    ],
)
def test_every_method_resumes(here, method, options):
    """Each has a state of its own; killed when the two last rounds are in no checkpoint yet."""
    text = EXPERIMENT.replace('method = "random"', f'method = {{name = "{method}"{options}}}')
    if method in ONE_TASK:
        text = text[: text.index("[[task]]")] + text[text.rindex("[[task]]") :]
    (here / "experiment.toml").write_text(text)
    whole = ("run", "experiment.toml", "-q", "-o", "whole")
    step = touch_number("rename whole/checkpoints/.round-000006", *whole, cwd=here)
    killed(here, step)
    assert finish(here) == ""
    assert files(here / "run") == files(here / "whole")


def test_a_run_that_reached_its_target_does_not_train_on(here, reference):
    target = ("--set", "stop.accuracy=0.12")
    expected = reference(*target)
    assert json.loads(expected.outcome["summary.json"])[0]["stopped_at_target"]
    step = expected.step("rename run/.summary.json")
    assert begin(here, *target, meet=signal.SIGKILL, at=step).code == -signal.SIGKILL
    assert finish(here) == ""
    assert expected.reached_by(here / "run")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_lets_the_round_finish_and_names_the_folder(here, reference, number):
    expected = reference()
    ended = begin(here, meet=number, at=expected.step("rename run/checkpoints/.round-000002"))
    assert (ended.code, ended.out) == (130, "")
    assert ended.err == "fedmux: stopped after round 3 of 8; `fedmux resume run` continues\n"
    assert finish(here) == ""
    assert expected.reached_by(here / "run")


def test_ctrl_c_in_a_process_of_its_own(here, reference):
    with subprocess.Popen(
        [sys.executable, "-m", "fedmux", "run", "experiment.toml", "-o", "run", *LONG],
        cwd=here,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        metrics = here / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert "`fedmux resume run` continues" in err.splitlines()[-1]
    assert finish(here) == ""
    assert reference(*LONG).reached_by(here / "run")


def test_a_second_ctrl_c_stops_at_once_and_loses_only_what_no_checkpoint_knew(here, reference):
    expected = reference()
    first = expected.step("open run/checkpoints/.round-000004")
    for second in range(first + 1, expected.step("open run/checkpoints/.round-000006") + 1):
        ended = begin(here, meet=signal.SIGINT, at=[first, second])
        assert (ended.code, ended.out) == (130, ""), expected.writes[second]
        assert len(ended.err.splitlines()) == 1
        assert "fedmux resume" in ended.err
        assert finish(here) == ""
        assert expected.reached_by(here / "run"), expected.writes[second]
        shutil.rmtree(here / "run")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def flip_in_the_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def flip_in_the_header(path: Path) -> None:
    flip(path, path.read_bytes().index(b"rounds"))


def replace_by_a_model(path: Path) -> None:
    save_file(load_file(path), path)  # sound, but without what makes it a checkpoint


DAMAGES = [truncate, empty, flip_in_the_middle, flip_in_the_header, replace_by_a_model]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(here, reference, damage):
    expected = reference()
    run = killed(here, expected.step("open run/models/"))
    damage(run / "checkpoints" / "round-000006.safetensors")
    said = finish(here).splitlines()
    assert len(said) == 1
    assert "round-000006.safetensors" in said[0]
    assert "going back to round 4" in said[0]
    assert expected.reached_by(run)


def test_without_a_sound_checkpoint_the_run_starts_again_and_says_so(here, reference):
    expected = reference()
    run = killed(here, expected.step("open run/models/"))
    for checkpoint in (run / "checkpoints").iterdir():
        truncate(checkpoint)
    said = finish(here).splitlines()
    assert ["round-000006.safetensors" in said[0], "round-000004.safetensors" in said[1]] == [True, True]
    assert all("going back to the start" in line for line in said)
    assert len(said) == 2
    assert expected.reached_by(run)


def test_checkpoints_written_after_damaged_ones_count(here, reference):
    """A damaged checkpoint of a later round must not crowd out the sound ones that follow it."""
    run = killed(here, reference().step("open run/models/"))
    for checkpoint in (run / "checkpoints").iterdir():
        truncate(checkpoint)
    shutil.copytree(run, here / "copy")
    step = touch_number("open copy/checkpoints/.round-000004", "resume", "copy", "-q", cwd=here)
    assert resume(here, meet=signal.SIGKILL, at=step).code == -signal.SIGKILL
    assert finish(here) == ""
    assert len((here / "run" / "metrics.jsonl").read_text().splitlines()) == 9
    assert reference().reached_by(run)


@pytest.mark.parametrize("mask", [0x01, 0x0F, 0x20, 0x80])
def test_no_flipped_byte_of_a_checkpoints_header_goes_unnoticed(here, reference, mask):
    run = killed(here, reference().step("open run/checkpoints/.round-000004"))
    path = run / "checkpoints" / "round-000002.safetensors"
    sound = path.read_bytes()
    folder = RunFolder(run)
    folder.lock()
    assert folder.latest()[0] is not None
    for position in range(8 + int.from_bytes(sound[:8], "little")):
        damaged = bytearray(sound)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        checkpoint, lengths, told = folder.latest()
        assert (checkpoint, lengths, len(told)) == (None, {}, 1), (position, chr(sound[position]))


def test_a_folder_that_another_run_has_filled_meanwhile_is_refused(tmp_path, monkeypatch):
    lock = RunFolder.lock

    def late(folder: RunFolder) -> None:
        (folder.path / "experiment.toml").write_text("the other's")
        lock(folder)

    monkeypatch.setattr(RunFolder, "lock", late)
    with pytest.raises(FedmuxError) as told:
        RunFolder.create(tmp_path / "run", {})
    refuses(str(told.value), str(tmp_path / "run"), ("not empty", "fedmux resume"))
    lock(RunFolder(tmp_path / "run"))  # nobody holds it, although the error is kept
    assert (tmp_path / "run" / "experiment.toml").read_text() == "the other's"


def test_half_a_line_and_half_a_record_are_left_out_and_cut_off(here, reference):
    expected = reference()
    run = killed(here, expected.step("rename run/checkpoints/.round-000006"))
    with (run / "metrics.jsonl").open("ab") as log:
        log.write(b'{"round": 7, "tasks": {"clo')
    with (run / "allocation.bin").open("ab") as log:
        log.write(b"\x07\x00\x00\x00\x01")
    assert "after round 6 of 8" in fedmux("show", "run", cwd=here).done().out
    assert json.loads(fedmux("show", "run", "--json", cwd=here).done().out)["rounds"] == "6/8"
    assert finish(here) == ""
    assert expected.reached_by(run)


@pytest.mark.parametrize("log", ["metrics.jsonl", "allocation.bin"])
def test_a_log_that_lost_its_end_is_told_and_an_earlier_checkpoint_is_used(here, reference, log):
    expected = reference()
    run = killed(here, expected.step("open run/models/"))
    if log == "metrics.jsonl":
        lines = (run / log).read_text().splitlines(keepends=True)
        (run / log).write_text("".join(lines[:6]))  # up to round 5
    else:
        jobs = Run(run).allocation
        (run / log).write_bytes(jobs[jobs["round"] <= 5].tobytes())
    said = finish(here).splitlines()
    assert log in said[0]
    assert "going back to round 4" in said[0]
    assert expected.reached_by(run)


def test_a_log_that_is_gone_is_written_again(here, reference):
    expected = reference()
    run = killed(here, expected.step("open run/models/"))
    (run / "metrics.jsonl").unlink()
    said = finish(here).splitlines()
    assert len(said) == 2
    assert all("metrics.jsonl" in line and "going back to the start" in line for line in said)
    assert expected.reached_by(run)


def test_resuming_a_finished_run_returns_it_untouched(here, reference):
    begin(here).done()
    before = {path: path.stat().st_mtime_ns for path in (here / "run").rglob("*")}
    ended = fedmux("resume", "run", "--json", cwd=here).done()
    assert json.loads(ended.out)["rounds"] == 8
    assert ended.err == ""
    assert {path: path.stat().st_mtime_ns for path in (here / "run").rglob("*")} == before


def test_a_run_killed_before_its_first_checkpoint_starts_again_without_a_word(here, reference):
    expected = reference()
    run = killed(here, expected.step("fsync run/metrics.jsonl"))
    assert not list((run / "checkpoints").iterdir())
    assert (run / "metrics.jsonl").stat().st_size
    assert finish(here) == ""
    assert expected.reached_by(run)


def test_a_run_killed_before_it_began_can_be_begun_again_in_the_same_folder(here, reference):
    run = killed(here, reference().step("rename run/.experiment.toml"))
    refuses(resume(here).refusal(), "run: ", ("before it began", "fedmux run"))
    (run / "notes.txt").write_text("mine")
    refuses(begin(here).refusal(), "run: ", "not empty")  # what is the user's is not taken over
    (run / "notes.txt").unlink()
    begin(here).done()
    assert reference().reached_by(run)


def test_of_two_processes_on_one_run_the_second_is_refused(here, reference):
    expected = reference()
    step = expected.step("rename run/checkpoints/.round-000004")
    first = start("run", "experiment.toml", "-q", "-o", "run", cwd=here, meet=signal.SIGSTOP, at=step)
    try:
        first.wait_until_stopped()
        refuses(resume(here).refusal(), "run: ", "another process")
        refuses(begin(here).refusal(), "run: ", "not empty")
    finally:
        first.send(signal.SIGCONT)
        ended = first.wait()
    assert (ended.code, ended.err) == (0, "")
    assert expected.reached_by(here / "run")


def test_an_experiment_changed_under_a_run_is_refused_until_the_change_is_undone(here, reference):
    expected = reference()
    run = killed(here, expected.step("open run/checkpoints/.round-000006"))
    path = run / "experiment.toml"
    original = path.read_text()
    before = names(run)
    for old, new in (
        ("rounds = 8", "rounds = 9"),
        ("initial = 0.05", "initial = 0.06"),
        ('name = "digits"', 'name = "figures"'),
        ("clients = 12", "clients = 13"),
    ):
        assert original.count(old) == 1, original
        path.write_text(original.replace(old, new))
        refuses(resume(here).refusal(), "run/experiment.toml", ("undo the change", "fedmux run"))
    assert names(run) == before
    path.write_text("# a comment is no change\n" + original)
    assert finish(here) == ""
    assert files(run) == expected.outcome


def test_an_experiment_spoiled_under_a_run_is_refused_in_one_line(here, reference):
    path = killed(here, reference().step("open run/checkpoints/.round-000006")) / "experiment.toml"
    original = path.read_text()
    for old, new, place, remedy in (
        ("rounds = 8", "", '"rounds"', "add it"),
        ("rounds = 8", "rounds = = 8", "line 2", "TOML"),
        ("rounds = 8", "rounds = 'x'", "rounds", "integer"),
        ("seed = 0", "sede = 0", '"sede"', '"seed"'),
    ):
        assert original.count(old) == 1
        path.write_text(original.replace(old, new))
        refuses(resume(here).refusal(), ("run/experiment.toml", place), remedy)


def test_an_experiment_changed_before_the_first_checkpoint_is_trained_as_it_stands(here, reference):
    run = killed(here, reference().step("open run/checkpoints/.round-000002"))
    path = run / "experiment.toml"
    path.write_text(path.read_text().replace("initial = 0.05", "initial = 0.06"))
    assert finish(here) == ""
    fedmux(
        "run", "experiment.toml", "-q", "-o", "other", "--set", "task.clothes.learning_rate=0.06", cwd=here
    ).done()
    assert files(run) == files(here / "other")
    assert files(run) != reference().outcome


def test_a_session_that_was_interrupted_can_resume_in_the_same_process(here, reference):
    """As in a notebook, where the traceback keeps everything alive that the run held."""
    script = """
import os, signal, fedmux

def press(metrics):
    if metrics["round"] == 3:
        os.kill(os.getpid(), signal.SIGINT)

try:
    fedmux.run(fedmux.Experiment.read("experiment.toml"), "run", observers=[press])
except fedmux.errors.Interrupted as stopped:
    kept = stopped
assert "fedmux resume run" in str(kept)
fedmux.resume("run")
"""
    subprocess.run([sys.executable, "-c", script], cwd=here, check=True)
    assert reference().reached_by(here / "run")


def test_a_run_folder_can_be_moved_and_resumed(here, reference):
    killed(here, reference().step("open run/checkpoints/.round-000006"))
    (here / "elsewhere").mkdir()
    (here / "run").rename(here / "elsewhere" / "moved")
    fedmux("resume", "moved", "-q", cwd=here / "elsewhere").done()
    assert reference().reached_by(here / "elsewhere" / "moved")


def test_the_record_of_a_run_is_an_experiment_file_of_its_own(here, reference):
    begin(here).done()
    table = (here / "run" / "experiment.toml").read_text()
    fedmux("run", "run/experiment.toml", "-q", "-o", "again", cwd=here).done()
    assert (here / "again" / "experiment.toml").read_text() == table
    assert reference().reached_by(here / "again")


def test_a_run_of_an_older_version_that_lacks_new_keys_goes_on(tmp_path, monkeypatch):
    """Keys that have come since then have their defaults; a key that differs is another experiment."""
    experiment = experiment_of(rounds=4, output={"checkpoint_every": 1})
    train(experiment, tmp_path / "whole")
    older = experiment.table()
    for section, key in (("stop", "retries"), ("evaluation", "report")):
        del older[section][key]
    for task in older["task"]:
        del task["units"]
    monkeypatch.setattr(Experiment, "table", lambda self: older)
    with interrupted_after(2):
        train(experiment, tmp_path / "parts")
    monkeypatch.undo()
    go_on(tmp_path / "parts")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    other = experiment_of(rounds=5)
    with refused(str(tmp_path / "parts"), "different experiment"):
        to_resume(unfinished(tmp_path), other, {})


def unfinished(folder: Path) -> Path:
    (folder / "parts" / "summary.json").unlink()
    return folder / "parts"


def test_a_log_that_a_power_cut_spoilt_after_the_checkpoint_stops_no_resume(tmp_path):
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    with interrupted_after(3):
        train(Experiment.read(tmp_path / "experiment.toml"), tmp_path / "run", notice=lambda line: None)
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as log:
        log.write(b"\0\0\0\n")
    fedmux("resume", "run", cwd=tmp_path).done()
    fedmux("run", "experiment.toml", "-o", "whole", cwd=tmp_path).done()
    assert files(tmp_path / "run") == files(tmp_path / "whole")
