"""What is wrong is told in one line that names it and the remedy; nothing is lost or left over."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from commands import Ended, fedmux, small_experiment, touch_number
from conftest import files

EXPERIMENT = small_experiment(rounds=4, checkpoint_every=1)

OWN = """\
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fedmux import Dataset


def labels_beyond_the_classes():
    x, y = np.zeros((40, 3), np.float32), np.arange(40) % 11
    return Dataset(x, y, x, y, "numbers", 10)


def fails():
    raise RuntimeError("the disk of the laboratory is not mounted\\nsee the wiki")


def averaged(outputs, targets):
    return cross_entropy(outputs, targets)


def raises(outputs, targets):
    raise RuntimeError("this loss is not finished")


class Narrow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(7, 10)

    def forward(self, x):
        return self.layer(x.flatten(1))


class NoMethod:
    pass
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    return tmp_path


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def refusal(here: Path, *arguments: object) -> str:
    """The line with which a command refuses; it must leave no trace."""
    before = listing(here)
    line = fedmux(*arguments, cwd=here).refusal()
    assert listing(here) == before
    return line


def refused_run(here: Path, *overrides: str) -> str:
    arguments = [part for override in overrides for part in ("--set", override)]
    return refusal(here, "run", "experiment.toml", "-o", "run", *arguments)


# Of each mistake in the file: what stands there instead, and what the line must say.
IN_THE_FILE = {
    "broken TOML": ("rounds = 4", "rounds = = 4", ["not valid TOML", "line 2"]),
    "a key twice": ("rate = 0.3", "rate = 0.3\nrate = 0.2", ["not valid TOML", "line 8"]),
    "unknown key": ("rounds = 4", "rouds = 4", ['unknown key "rouds"', 'did you mean "rounds"?']),
    "unknown key far from all": ("rounds = 4", "rounds = 4\nzzz = 1", ['"zzz"', "known: ", "population"]),
    "unknown key in a table": ("clients = 12", "cleints = 12", ["[population]", '"cleints"', '"clients"?']),
    "unknown key in a task": (
        "learning_rate = 0.05",
        "learning_rat = 0.05",
        ['task 1 "clothes"', '"learning_rat"', 'did you mean "learning_rate"?'],
    ),
    "unknown key in a partition": (
        "share = 0.3",
        "shar = 0.3",
        ['task 1 "clothes"', '"partition.shar"', 'did you mean "partition.share"?'],
    ),
    "key of another partition": (
        'kind = "label-share"',
        'kind = "iid"',
        ['unknown key "partition.share"', "known: disjoint, kind, sizes"],
    ),
    "unknown key in method options": (
        'method = "random"',
        'method = {name = "random", participatoin = "clients"}',
        ["method", '"participatoin"', 'did you mean "participation"?'],
    ),
    "option of another method": (
        'method = "random"',
        'method = {name = "full", participation = "clients"}',
        ["method", '"participation"'],
    ),
    "missing key": ("rounds = 4", "", ['missing key "rounds"', "add it"]),
    "missing key in a task": (
        "learning_rate = 0.05",
        "",
        ['task 1 "clothes"', 'missing key "learning_rate"'],
    ),
    "missing key in a partition": (
        ", alpha = 0.5, sizes = [10, 20]",
        "",
        ['task 2 "digits"', 'missing key "partition.alpha"'],
    ),
    "shorthand that lacks a key": (
        '{kind = "dirichlet", alpha = 0.5, sizes = [10, 20]}',
        '"dirichlet"',
        ['task 2 "digits"', 'missing key "partition.alpha"'],
    ),
    "partition without a kind": ('kind = "dirichlet", ', "", ['task 2 "digits"', '"partition.kind"']),
    "unknown kind of partition": (
        '"dirichlet"',
        '"dirichle"',
        ["partition.kind", "'dirichlet'", "'dirichle'"],
    ),
    "word for a number": ("rounds = 4", 'rounds = "four"', ["rounds", "integer", "'four'"]),
    "fraction for a whole number": ("rounds = 4", "rounds = 4.5", ["rounds", "integer"]),
    "number for a list": ("samples = 100", "thresholds = 0.5", ["[evaluation] thresholds", "list", "0.5"]),
    "number for a method": ('method = "random"', "method = 3", ["method", "a name, or a table", "got 3"]),
    "table for a fraction": (
        "[output]",
        "[stop]\naccuracy = {a = 1}\n[output]",
        ["[stop] accuracy", "number"],
    ),
    "table for a number": (
        '"digits"\ndata',
        '"digits"\nbatch_size = {a = 1}\ndata',
        ["batch_size", "integer"],
    ),
    "negative rate": ("rate = 0.3", "rate = -0.3", ["[population] rate", "greater than 0", "-0.3"]),
    "rate above one": ("rate = 0.3", "rate = 3", ["[population] rate", "less than or equal to 1", "got 3"]),
    "jobs and rate": ("rate = 0.3", "rate = 0.3\njobs = 3", ["population", "jobs and rate", "remove one"]),
    "no clients": ("clients = 12", "clients = 0", ["[population] clients", "greater than or equal to 1"]),
    "no rounds": ("rounds = 4", "rounds = 0", ["rounds", "greater than or equal to 1", "got 0"]),
    "negative seed": ("rounds = 4", "rounds = 4\nseed = -1", ["seed", "-1"]),
    "negative learning rate": (
        "learning_rate = 0.05",
        "learning_rate = -0.05",
        ['task 1 "clothes"', "learning_rate", "greater than 0", "-0.05"],
    ),
    "word for a learning rate": (
        "learning_rate = 0.05",
        'learning_rate = "fast"',
        ['task 1 "clothes"', "learning_rate", "table", "'fast'"],
    ),
    "unknown schedule": (
        "learning_rate = 0.05",
        'learning_rate = {initial = 0.05, schedule = "cosine"}',
        ["learning_rate.schedule", "'inverse'", "'cosine'"],
    ),
    "range upside down": ("0.3, sizes = [10, 20]", "0.3, sizes = [20, 10]", ["partition.sizes", "[10, 20]"]),
    "two tasks of one name": ('name = "digits"', 'name = "clothes"', ['two tasks are named "clothes"']),
    "a name that is no file name": ('name = "digits"', 'name = "../digits"', ['task 2 "../digits"', "name"]),
    "processors for too few": (
        "clients = 12",
        "clients = 12\nprocessors = [1, 2]",
        ["processors", "2 numbers", "12 clients"],
    ),
    "shares that do not add up": (
        "clients = 12",
        "clients = 12\nprocessors = {all = 0.5, one = 0.4}",
        ["processors", "add up to 1", "0.9"],
    ),
    "a share that there is not": (
        "clients = 12",
        "clients = 12\navailability = {all = 0.5, some = 0.5}",
        ["availability", '"some"', "all_but_one"],
    ),
    "unknown method": (
        'method = "random"',
        'method = "randm"',
        ['"randm"', 'did you mean "random"?', "full"],
    ),
    "one task only": (
        'method = "random"',
        'method = "fedavg"',
        ['"fedavg"', "one task", "has 2", '"random"'],
    ),
    "method that cannot be imported": (
        'method = "random"',
        'method = "nosuch:Method"',
        ['method "nosuch:Method"', "no module nosuch", "install it"],
    ),
    "method that is none": (
        'method = "random"',
        'method = "own:NoMethod"',
        ["own:NoMethod", "fedmux.Method"],
    ),
}


@pytest.mark.parametrize("mistake", IN_THE_FILE)
def test_a_mistake_in_the_file_is_told_with_file_place_and_remedy(here, mistake):
    right, wrong, words = IN_THE_FILE[mistake]
    assert EXPERIMENT.count(right) == 1
    (here / "own.py").write_text(OWN)
    (here / "experiment.toml").write_text(EXPERIMENT.replace(right, wrong))
    line = refused_run(here)
    assert line.startswith("experiment.toml: ")
    for word in words:
        assert word in line


def test_every_mistake_has_its_own_line(here):
    (here / "experiment.toml").write_text(
        EXPERIMENT.replace("rounds = 4", "rounds = 0").replace("clients = 12", "clients = 0")
    )
    ended = fedmux("run", "experiment.toml", cwd=here)
    assert (ended.code, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith("fedmux: experiment.toml: rounds")
    assert second.startswith("fedmux: experiment.toml: [population] clients")


# Mistakes that only show once data and models are there: an override, and what the line must say.
IN_A_TASK = {
    "nobody can train": (
        "population.processors=[0,0,0,0,0,0,0,0,0,0,0,0]",
        ["no client can train", "processors"],
    ),
    "unknown data": ("task.clothes.data=mnst", ['data "mnst"', 'did you mean "mnist"?', ".npz"]),
    "data that is not here": ("task.clothes.data=cifar10", ["cifar10", "fedmux data get cifar10"]),
    "no such npz": ("task.clothes.data=nosuch.npz", ["nosuch.npz", "does not exist"]),
    "an npz that is none": ("task.clothes.data=text.npz", ["text.npz"]),
    "NaN in the data": ("task.clothes.data=nan.npz", ["nan.npz", "train input 7", "NaN", "remove"]),
    "labels out of range": (
        "task.clothes.data=own:labels_beyond_the_classes",
        ["own:labels_beyond_the_classes", "label 10 at row 10", "0..9"],
    ),
    "a data function that fails": ("task.clothes.data=own:fails", ["own:fails", "laboratory is not mounted"]),
    "a data function that is not there": (
        "task.clothes.data=own:fail",
        ["own:fail", 'did you mean "fails"?'],
    ),
    "data that cannot be imported": ("task.clothes.data=nosuch:data", ["nosuch:data", "no module nosuch"]),
    "a module that needs another": (
        "task.clothes.data=needy:data",
        ["needy:data", "nosuch", "not installed"],
    ),
    "a module with a syntax error": (
        "task.clothes.data=broken:data",
        ["broken:data", "SyntaxError", "line 1"],
    ),
    "unknown model": ("task.clothes.model=resnet", ['model "resnet"', 'did you mean "resnet18"?']),
    "model that cannot be imported": ("task.clothes.model=nosuch:Net", ["nosuch:Net", "no module nosuch"]),
    "model without such an option": ("task.clothes.model_options={hiden=[3]}", ['"hiden"', '"hidden"?']),
    "model for other data": ("task.clothes.model=char-lstm", ["char-lstm", "tokens", "(1, 28, 28)"]),
    "own model of another shape": ("task.clothes.model=own:Narrow", ["does not fit", "(1, 28, 28)", "7x10"]),
    "unknown loss": ("task.clothes.loss=cross-entrpy", ["cross-entrpy", 'did you mean "cross-entropy"?']),
    "loss that cannot be imported": ("task.clothes.loss=nosuch:loss", ["nosuch:loss", "no module nosuch"]),
    "loss that is averaged": (
        "task.clothes.loss=own:averaged",
        ['loss "own:averaged" must give one value per point', 'reduction="none"'],
    ),
    "loss that fails": ("task.clothes.loss=own:raises", ["this loss is not finished"]),
    "loss with unknown options": (
        "task.clothes.loss_options={smoothing=0.1}",
        ["cross-entropy", "smoothing"],
    ),
    "unknown metric": ("task.clothes.metric=acuracy", ["acuracy", 'did you mean "accuracy"?']),
    "no such initial weights": (
        "task.clothes.initial_weights=nosuch.safetensors",
        ["initial_weights", "no such file", "nosuch.safetensors"],
    ),
    "initial weights of another shape": (
        "task.clothes.initial_weights=other.safetensors",
        ["initial_weights", "other.safetensors", "does not fit the model"],
    ),
    "initial weights that are none": (
        "task.clothes.initial_weights=experiment.toml",
        ["initial_weights", "experiment.toml"],
    ),
    "partition larger than the pool": (
        "task.clothes.partition.sizes=5000",
        ["60000 points", "there are 6000", "disjoint = false"],
    ),
    "natural groups that there are not": ("task.clothes.partition=natural", ['"natural"', "groups"]),
    "more classes than labels": (
        'task.clothes.partition={kind="classes",classes=11}',
        ["11 classes", "10 labels", "lower classes"],
    ),
    "too few held-out points": ("evaluation.validation_share=0.001", ["held-out", "validation_share"]),
}


@pytest.mark.parametrize("mistake", IN_A_TASK)
def test_a_task_that_cannot_be_had_is_told_by_name_before_anything_is_written(here, mistake):
    override, words = IN_A_TASK[mistake]
    (here / "own.py").write_text(OWN)
    (here / "needy.py").write_text("import nosuch\n")
    (here / "broken.py").write_text("def data(:\n")
    (here / "text.npz").write_text("not an archive")
    points = {f"{part}_x": np.zeros((20, 3), np.float32) for part in ("train", "test")}
    points["train_x"][7, 1] = np.nan
    np.savez(here / "nan.npz", **points, train_y=np.arange(20) % 2, test_y=np.arange(20) % 2)
    save_file({"layers.0.weight": torch.zeros(3, 3)}, here / "other.safetensors")
    line = refused_run(here, override)
    assert line.startswith('task "clothes": ')
    for word in words:
        assert word in line


COMMANDS = {
    "missing file": (["run", "nosuch.toml"], ["nosuch.toml", "no such file", "fedmux init"]),
    "folder for a file": (["run", "."], [".: cannot be read", "directory"]),
    "not text": (["run", "bytes.toml"], ["bytes.toml", "cannot be read", "utf-8"]),
    "empty override": (
        ["run", "experiment.toml", "--set", "rounds"],
        ['"rounds"', "key=value", "population"],
    ),
    "override of a value's inside": (
        ["run", "experiment.toml", "--set", "rounds.x=1"],
        ["rounds", "single value"],
    ),
    "override of an unknown key": (["run", "experiment.toml", "--set", "rouds=1"], ['"rouds"', '"rounds"?']),
    "override of an unknown task": (
        ["run", "experiment.toml", "--set", "task.cloths.learning_rate=1"],
        ['no task is named "cloths"', "clothes, digits"],
    ),
    "override that spoils the tasks": (
        ["run", "experiment.toml", "--set", "task=5", "--set", "task.learning_rate=1"],
        ["task", "list", "got 5"],
    ),
    "override without a value": (["run", "experiment.toml", "--set"], ["--set", "argument", "--help"]),
    "unknown command": (["trian"], ["trian", "--help"]),
    "unknown option": (["run", "experiment.toml", "--sed", "1"], ["--sed", "--help"]),
    "missing argument": (["run"], ["EXPERIMENT", "--help"]),
    "too many arguments": (["run", "experiment.toml", "more"], ["more", "--help"]),
    "seeds that are none": (["compare", "experiment.toml", "--seeds", "x"], ['--seeds "x"', "0-4"]),
    "seeds upside down": (["compare", "experiment.toml", "--seeds", "4-0"], ['--seeds "4-0"', "0-4"]),
    "a seed twice": (["compare", "experiment.toml", "--seeds", "1,1"], ["random-seed-1", "twice"]),
    "a method twice": (["compare", "experiment.toml", "--methods", "full,full"], ["full-seed-0", '"label"']),
    "an axis without values": (
        ["compare", "experiment.toml", "--vary", "rounds"],
        ['--vary "rounds"', "key=a,b"],
    ),
    "an axis of nothing": (["compare", "experiment.toml", "--vary", "=1,2"], ['--vary "=1,2"', "key=a,b"]),
    "an axis with a bad value": (["compare", "experiment.toml", "--vary", "rounds=2,x"], ["rounds", "'x'"]),
    "an axis of an unknown key": (
        ["compare", "experiment.toml", "--vary", "rouds=2"],
        ['"rouds"', '"rounds"?'],
    ),
    "an unknown method to compare": (
        ["compare", "experiment.toml", "--methods", "full,randm"],
        ["randm", "random"],
    ),
    "a baseline that is not compared": (
        ["compare", "experiment.toml", "--methods", "random,full", "--baseline", "fedavg"],
        ['baseline "fedavg"', "random, full"],
    ),
    "no number of runs": (["compare", "experiment.toml", "--parallel", "all"], ["--parallel", "all"]),
    "nothing to resume": (["resume", "nosuch"], ["nosuch", "not a run folder", "fedmux list"]),
    "a file to resume": (["resume", "experiment.toml"], ["experiment.toml", "not a run folder"]),
    "an experiment's folder to resume": (["resume", "."], [".: is not a run folder"]),
    "nothing to show": (["show", "nosuch"], ["nosuch", "not a run folder"]),
    "nothing to list": (["list"], ["runs", "no such folder", "fedmux run"]),
    "a file that is there": (["init", "experiment.toml"], ["experiment.toml", "exists already", "another"]),
    "a folder that is not there": (["init", "nosuch/experiment.toml"], ["nosuch/experiment.toml"]),
    "unknown data to get": (["data", "get", "nosuch"], ["nosuch", "known are"]),
    "no data to add": (["data", "add", "mine", "nosuch.npz"], ["nosuch.npz"]),
    "run below a file": (["run", "experiment.toml", "-o", "experiment.toml/run"], ["experiment.toml/run"]),
    "run in place of a file": (
        ["run", "experiment.toml", "-o", "bytes.toml"],
        ["bytes.toml", "cannot be written"],
    ),
    "compare below a file": (
        ["compare", "experiment.toml", "-o", "experiment.toml/c"],
        ["experiment.toml/c"],
    ),
    "run in a folder that is in use": (
        ["run", "experiment.toml", "-o", "used"],
        ["used", "exists and is not empty", "-o"],
    ),
    "compare in a folder that is in use": (
        ["compare", "experiment.toml", "-o", "used"],
        ["used", "exists and is not empty", "-o"],
    ),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_mistake_on_the_command_line_is_told_in_one_line(here, mistake):
    arguments, words = COMMANDS[mistake]
    (here / "bytes.toml").write_bytes(b"\xff\xfe")
    (here / "used").mkdir()
    (here / "used" / "thesis.tex").write_text("precious")
    line = refusal(here, *arguments)
    for word in words:
        assert word in line
    assert (here / "used" / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nosuch.toml"], ["nosuch.toml: no such file", "fedmux init"]),
        (["run", "experiment.toml", "-o", "run", "--set", "rouds=3"], ['did you mean "rounds"?']),
        (["run", "experiment.toml", "-o", "run", "--set", "task.model=mpl"], ['did you mean "mlp"?']),
    ],
)
def test_a_process_of_its_own_refuses_alike(here, arguments, words):
    ended = subprocess.run(
        [sys.executable, "-m", "fedmux", *arguments], cwd=here, capture_output=True, text=True, check=False
    )
    line = Ended(ended.returncode, ended.stdout, ended.stderr).refusal()
    for word in words:
        assert word in line
    assert listing(here) == {"experiment.toml"}


def test_a_finished_run_is_not_written_over(here):
    fedmux("run", "experiment.toml", "-q", "-o", "run", cwd=here).done()
    before = files(here / "run")
    line = refusal(here, "run", "experiment.toml", "-o", "run", "--set", "seed=1")
    assert "run: the folder exists and is not empty" in line
    assert "fedmux resume" in line
    assert files(here / "run") == before


def test_a_comparison_is_not_mixed_with_another(here):
    (here / "c" / "runs").mkdir(parents=True)
    (here / "c" / "comparison.toml").write_text("methods = []\n")
    assert "comparison.toml is damaged" in refusal(here, "compare", "experiment.toml", "-o", "c")


@pytest.mark.parametrize(("rate", "rounds"), [("1e30", 4), ("1e30", 1), ("1e6", 8)])
def test_training_that_diverges_is_told_with_task_round_and_remedy(here, rate, rounds):
    """An update, or the loss of what the updates add up to, is not finite; what is logged stays JSON."""
    changes = ["--set", f"task.clothes.learning_rate={rate}", "--set", f"rounds={rounds}"]
    stops = ["--set", "stop.divergence=stop"]
    line = fedmux("run", "experiment.toml", "-q", "-o", "run", *changes, *stops, cwd=here).refusal()
    assert line.startswith('task "clothes" diverged in round ')
    assert "lower learning_rate or set clip" in line
    for entry in (here / "run" / "metrics.jsonl").read_text().splitlines():
        json.loads(entry, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert "not finished" in fedmux("list", ".", cwd=here).done().out
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
