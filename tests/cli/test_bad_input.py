"""What is wrong is told in one line that names it and the remedy; nothing is lost or left over."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Ended, fedmux, touch_number
from conftest import files
from refusals import refuses
from wrong_code import CODE
from wrong_commands import COMMANDS
from wrong_files import FILES
from wrong_inputs import EXPERIMENT, RUN, Wrong, scenery

WRONG = {
    **{f"file: {name}": wrong for name, wrong in FILES.items()},
    **{f"code: {name}": wrong for name, wrong in CODE.items()},
    **{f"command: {name}": wrong for name, wrong in COMMANDS.items()},
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wrong inputs are about: not to be changed."""
    folder = tmp_path_factory.mktemp("everything")
    scenery(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, every folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def listing(folder: Path) -> set[str]:
    return set(contents(folder))


def refusal(here: Path, *arguments: object, environment: dict[str, str] | None = None) -> str:
    """The line with which a command refuses; it must leave everything as it was."""
    before = contents(here)
    line = fedmux(*arguments, cwd=here, environment=environment).refusal()
    assert contents(here) == before
    return line


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_is_refused_in_one_line_with_place_and_remedy_and_nothing_is_lost(
    name: str, everything: Path, tmp_path: Path
) -> None:
    wrong: Wrong = WRONG[name]
    here, logs = tmp_path / "here", tmp_path / "logs"
    shutil.copytree(everything, here)
    logs.mkdir()
    if wrong.edit:
        right, instead = wrong.edit
        assert EXPERIMENT.count(right) == 1
        (here / "experiment.toml").write_text(EXPERIMENT.replace(right, instead))
    line = refusal(here, *wrong.arguments, environment={"TMPDIR": str(logs), **wrong.environment})
    assert line.startswith(wrong.start)
    refuses(line.removeprefix(wrong.start), wrong.place, wrong.remedy)
    assert ("all of it is in" in line) == bool(listing(logs))


def test_there_are_as_many_wrong_inputs_as_were_promised() -> None:
    assert len(WRONG) >= 150


def test_every_mistake_has_its_own_line(here):
    (here / "experiment.toml").write_text(
        EXPERIMENT.replace("rounds = 4", "rounds = 0").replace("clients = 12", "clients = 0")
    )
    ended = fedmux("run", "experiment.toml", cwd=here)
    assert (ended.code, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith("fedmux: experiment.toml: rounds")
    assert second.startswith("fedmux: experiment.toml: [population] clients")


@pytest.mark.parametrize(
    ("arguments", "place", "remedy"),
    [
        (["run", "nosuch.toml"], "nosuch.toml", ("no such file", "fedmux init")),
        ([*RUN, "-o", "run", "--set", "rouds=3"], ("experiment.toml", '"rouds"'), '"rounds"'),
        ([*RUN, "-o", "run", "--set", "task.model=mpl"], ('task "clothes"', 'model "mpl"'), '"mlp"'),
    ],
    ids=["file", "key", "model"],
)
def test_a_process_of_its_own_refuses_alike(here, arguments, place, remedy):
    ended = subprocess.run(
        [sys.executable, "-m", "fedmux", *arguments], cwd=here, capture_output=True, text=True, check=False
    )
    refuses(Ended(ended.returncode, ended.stdout, ended.stderr).refusal(), place, remedy)
    assert listing(here) == {"experiment.toml"}


def test_a_finished_run_is_not_written_over(here):
    fedmux("run", "experiment.toml", "-q", "-o", "run", cwd=here).done()
    before = files(here / "run")
    line = refusal(here, "run", "experiment.toml", "-o", "run", "--set", "seed=1")
    refuses(line, "run: ", ("not empty", "choose another with -o"))
    assert "resume" not in line and files(here / "run") == before


def test_a_comparison_is_not_mixed_with_another(here):
    (here / "c" / "runs").mkdir(parents=True)
    (here / "c" / "comparison.toml").write_text("methods = []\n")
    refuses(refusal(here, "compare", "experiment.toml", "-o", "c"), "comparison.toml", "damaged")


@pytest.mark.parametrize(("rate", "rounds"), [("1e30", 4), ("1e30", 1), ("1e6", 8)])
def test_training_that_diverges_is_told_with_task_round_and_remedy(here, rate, rounds):
    """An update, or the loss of what the updates add up to, is not finite; what is logged stays JSON."""
    changes = ["--set", f"task.clothes.learning_rate={rate}", "--set", f"rounds={rounds}"]
    stops = ["--set", "stop.divergence=stop"]
    line = fedmux("run", "experiment.toml", "-q", "-o", "run", *changes, *stops, cwd=here).refusal()
    refuses(line, ('task "clothes"', "diverged", "round "), ("lower learning_rate", "clip"))
    for entry in (here / "run" / "metrics.jsonl").read_text().splitlines():
        json.loads(entry, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    (row,) = json.loads(fedmux("list", ".", "--json", cwd=here).done().out)
    assert (row["state"], row["reason"]) == ("failed", line)
    assert fedmux("resume", "run", "-q", cwd=here).refusal() == line
    paused = fedmux("run", "experiment.toml", "-q", "-o", "paused", *changes, cwd=here)
    summary = json.loads((here / "paused" / "summary.json").read_text())
    last = paused.err.splitlines()[-1]
    if len(summary["tasks"]) > 1:
        assert paused.code == 0 and last.startswith('warning: task "clothes" diverged in round ')
    else:
        assert paused.code == 2 and "every task has diverged" in last
    assert "clothes (diverged in round" in fedmux("show", "paused", cwd=here).done().out


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    here = tmp_path_factory.mktemp("uninterrupted")
    (here / "experiment.toml").write_text(EXPERIMENT)
    fedmux("run", "experiment.toml", "-q", "-o", "run", cwd=here).done()
    return files(here / "run")


@pytest.mark.parametrize("limit", [100, 600, 1_000, 2_000, 3_500, 50_000, 220_000])
def test_a_full_disk_is_told_and_the_run_goes_on_once_there_is_room(here, uninterrupted, limit):
    """No file may grow beyond the limit: the write that would fails halfway, for root too."""
    ended = fedmux("run", "experiment.toml", "-q", "-o", "run", cwd=here, file_limit=limit)
    line = ended.refusal()
    assert line.startswith("run: cannot be written (File too large)")
    assert not list((here / "run").rglob("*.tmp"))
    if (here / "run" / "experiment.toml").exists():
        assert "fedmux resume run" in line
        fedmux("resume", "run", "-q", cwd=here).done()
    else:
        fedmux("run", "experiment.toml", "-q", "-o", "run", cwd=here).done()
    assert files(here / "run") == uninterrupted


def interrupted(here: Path) -> Path:
    """A run that was stopped after its second round."""
    dry, run = (("run", "experiment.toml", "-q", "-o", name) for name in ("dry", "run"))
    step = touch_number("rename dry/checkpoints/.round-000001", *dry, cwd=here)
    assert fedmux(*run, cwd=here, meet=signal.SIGINT, at=step).code == 130
    return here / "run"


def test_a_disk_that_is_full_while_a_run_is_resumed_takes_nothing_away(here, uninterrupted):
    run = interrupted(here)
    before = {path: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    assert len(before) == 2
    assert "File too large" in fedmux("resume", "run", "-q", cwd=here, file_limit=10_000).refusal()
    assert {path: path.read_bytes() for path in (run / "checkpoints").iterdir()} == before
    fedmux("resume", "run", "-q", cwd=here).done()
    assert files(run) == uninterrupted


def test_a_picture_that_cannot_be_written_costs_no_result(here, uninterrupted):
    run = interrupted(here)
    (run / "accuracy.png").mkdir()
    ended = fedmux("resume", "run", cwd=here)
    assert ended.code == 2
    assert "run/accuracy.png" in ended.err.splitlines()[-1]
    assert files(here / "run") == uninterrupted
