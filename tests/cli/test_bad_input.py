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
from refusals import refuses

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


CLOTHES, DIGITS = 'task 1 "clothes"', 'task 2 "digits"'

# Mistakes in the file: what is right and what stands there instead, the place, the remedy.
IN_THE_FILE = {
    "broken TOML": (("rounds = 4", "rounds = = 4"), "line 2", "valid TOML"),
    "a key twice": (("rate = 0.3", "rate = 0.3\nrate = 0.2"), "line 8", ("valid TOML", "overwrite")),
    "unknown key": (("rounds = 4", "rouds = 4"), '"rouds"', '"rounds"'),
    "unknown key far from all": (("rounds = 4", "rounds = 4\nzzz = 1"), '"zzz"', ("known", "population")),
    "unknown key in a table": (("clients = 12", "cleints = 12"), ("[population]", '"cleints"'), '"clients"'),
    "unknown key in a task": (
        ("learning_rate = 0.05", "learning_rat = 0.05"),
        (CLOTHES, '"learning_rat"'),
        '"learning_rate"',
    ),
    "unknown key in a partition": (
        ("share = 0.3", "shar = 0.3"),
        (CLOTHES, '"partition.shar"'),
        '"partition.share"',
    ),
    "key of another partition": (
        ('kind = "label-share"', 'kind = "iid"'),
        (CLOTHES, '"partition.share"'),
        ("disjoint", "kind", "sizes"),
    ),
    "unknown key in method options": (
        ('method = "random"', 'method = {name = "random", participatoin = "clients"}'),
        ("method", '"participatoin"'),
        '"participation"',
    ),
    "option of another method": (
        ('method = "random"', 'method = {name = "full", participation = "clients"}'),
        ("method", '"participation"'),
        "unknown",
    ),
    "missing key": (("rounds = 4", ""), '"rounds"', ("missing", "add it")),
    "missing key in a task": (
        ("learning_rate = 0.05", ""),
        (CLOTHES, '"learning_rate"'),
        ("missing", "add it"),
    ),
    "missing key in a partition": (
        (", alpha = 0.5, sizes = [10, 20]", ""),
        (DIGITS, '"partition.alpha"'),
        ("missing", "add it"),
    ),
    "shorthand that lacks a key": (
        ('{kind = "dirichlet", alpha = 0.5, sizes = [10, 20]}', '"dirichlet"'),
        (DIGITS, '"partition.alpha"'),
        ("missing", "add it"),
    ),
    "partition without a kind": (
        ('kind = "dirichlet", ', ""),
        (DIGITS, '"partition.kind"'),
        ("missing", "add"),
    ),
    "unknown kind of partition": (
        ('"dirichlet"', '"dirichle"'),
        (DIGITS, "partition.kind", "'dirichle'"),
        ("'iid'", "'dirichlet'"),
    ),
    "word for a number": (("rounds = 4", 'rounds = "four"'), ("rounds", "'four'"), "integer"),
    "fraction for a whole number": (("rounds = 4", "rounds = 4.5"), "rounds", ("integer", "fraction")),
    "number for a list": (("samples = 100", "thresholds = 0.5"), ("[evaluation] thresholds", "0.5"), "list"),
    "number for a method": (
        ('method = "random"', "method = 3"),
        ("method", "3"),
        ("name", "table", '{name = "random"}'),
    ),
    "table for a fraction": (
        ("[output]", "[stop]\naccuracy = {a = 1}\n[output]"),
        "[stop] accuracy",
        "number",
    ),
    "table for a number": (
        ('"digits"\ndata', '"digits"\nbatch_size = {a = 1}\ndata'),
        (DIGITS, "batch_size"),
        "integer",
    ),
    "negative rate": (("rate = 0.3", "rate = -0.3"), ("[population] rate", "-0.3"), "greater than 0"),
    "rate above one": (("rate = 0.3", "rate = 3"), ("[population] rate", "3"), "less than or equal to 1"),
    "jobs and rate": (("rate = 0.3", "rate = 0.3\njobs = 3"), ("population", "jobs", "rate"), "remove one"),
    "no clients": (
        ("clients = 12", "clients = 0"),
        ("[population] clients", "0"),
        "greater than or equal to 1",
    ),
    "no rounds": (("rounds = 4", "rounds = 0"), ("rounds", "0"), "greater than or equal to 1"),
    "negative seed": (("rounds = 4", "rounds = 4\nseed = -1"), ("seed", "-1"), "greater than or equal to 0"),
    "negative learning rate": (
        ("learning_rate = 0.05", "learning_rate = -0.05"),
        (CLOTHES, "learning_rate", "-0.05"),
        "greater than 0",
    ),
    "word for a learning rate": (
        ("learning_rate = 0.05", 'learning_rate = "fast"'),
        (CLOTHES, "learning_rate", "'fast'"),
        ("number", "table", "initial", "schedule"),
    ),
    "unknown schedule": (
        ("learning_rate = 0.05", 'learning_rate = {initial = 0.05, schedule = "cosine"}'),
        (CLOTHES, "learning_rate.schedule", "'cosine'"),
        ("'constant'", "'inverse'", "'step'"),
    ),
    "range upside down": (
        ("0.3, sizes = [10, 20]", "0.3, sizes = [20, 10]"),
        (CLOTHES, "partition.sizes", "[20, 10]"),
        "[10, 20]",
    ),
    "two tasks of one name": (('name = "digits"', 'name = "clothes"'), ("tasks", '"clothes"'), "own name"),
    "a name that is no file name": (
        ('name = "digits"', 'name = "../digits"'),
        ('task 2 "../digits"', "name", "'../digits'"),
        "A-Za-z0-9",
    ),
    "processors for too few": (
        ("clients = 12", "clients = 12\nprocessors = [1, 2]"),
        ("population", "processors", "2"),
        "12 clients",
    ),
    "shares that do not add up": (
        ("clients = 12", "clients = 12\nprocessors = {all = 0.5, one = 0.4}"),
        ("[population] processors", "0.9"),
        "add up to 1",
    ),
    "a share that there is not": (
        ("clients = 12", "clients = 12\navailability = {all = 0.5, some = 0.5}"),
        ("[population] availability", '"some"'),
        ("all", "all_but_one"),
    ),
    "unknown method": (
        ('method = "random"', 'method = "randm"'),
        ("method", '"randm"'),
        ('"random"', "full"),
    ),
    "one task only": (('method = "random"', 'method = "fedavg"'), ('"fedavg"', "one task", "2"), '"random"'),
    "method that cannot be imported": (
        ('method = "random"', 'method = "nosuch:Method"'),
        'method "nosuch:Method"',
        ("nosuch", "install it", "run where nosuch is"),
    ),
    "method that is none": (
        ('method = "random"', 'method = "own:NoMethod"'),
        'method "own:NoMethod"',
        "fedmux.Method",
    ),
}


@pytest.mark.parametrize("mistake", IN_THE_FILE)
def test_a_mistake_in_the_file_is_told_with_file_place_and_remedy(here, mistake):
    (right, wrong), place, remedy = IN_THE_FILE[mistake]
    assert EXPERIMENT.count(right) == 1
    (here / "own.py").write_text(OWN)
    (here / "experiment.toml").write_text(EXPERIMENT.replace(right, wrong))
    line = refused_run(here)
    assert line.startswith("experiment.toml: ")
    refuses(line.removeprefix("experiment.toml: "), place, remedy)


def test_every_mistake_has_its_own_line(here):
    (here / "experiment.toml").write_text(
        EXPERIMENT.replace("rounds = 4", "rounds = 0").replace("clients = 12", "clients = 0")
    )
    ended = fedmux("run", "experiment.toml", cwd=here)
    assert (ended.code, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith("fedmux: experiment.toml: rounds")
    assert second.startswith("fedmux: experiment.toml: [population] clients")


# Mistakes that only show once data and models are there: an override, the place in the task, the remedy.
IN_A_TASK = {
    "nobody can train": (
        "population.processors=[0,0,0,0,0,0,0,0,0,0,0,0]",
        "no client",
        ("population.availability", "processors", "budget"),
    ),
    "unknown data": ("task.clothes.data=mnst", 'data "mnst"', ('"mnist"', "digits", ".npz")),
    "data that is not here": ("task.clothes.data=cifar10", 'data "cifar10"', "fedmux data get cifar10"),
    "no such npz": ("task.clothes.data=nosuch.npz", "nosuch.npz", "exist"),
    "an npz that is none": ("task.clothes.data=text.npz", "text.npz", "numpy.savez"),
    "NaN in the data": (
        "task.clothes.data=nan.npz",
        ('data "nan.npz"', "train input 7", "NaN"),
        ("remove", "impute"),
    ),
    "labels out of range": (
        "task.clothes.data=own:labels_beyond_the_classes",
        ('data "own:labels_beyond_the_classes"', "label 10", "row 10"),
        "0..9",
    ),
    "a data function that fails": (
        "task.clothes.data=own:fails",
        'data "own:fails"',
        ("RuntimeError", "the disk of the laboratory is not mounted"),
    ),
    "a data function that is not there": ("task.clothes.data=own:fail", 'data "own:fail"', '"fails"'),
    "data that cannot be imported": (
        "task.clothes.data=nosuch:data",
        'data "nosuch:data"',
        ("nosuch", "install it", "run where nosuch is"),
    ),
    "a module that needs another": (
        "task.clothes.data=needy:data",
        ('data "needy:data"', "needy"),
        ("nosuch", "installed"),
    ),
    "a module with a syntax error": (
        "task.clothes.data=broken:data",
        ('data "broken:data"', "broken.py", "line 1"),
        ("SyntaxError", "fix the module"),
    ),
    "unknown model": ("task.clothes.model=resnet", 'model "resnet"', ('"resnet18"', "cnn", "module:Class")),
    "model that cannot be imported": (
        "task.clothes.model=nosuch:Net",
        'model "nosuch:Net"',
        ("nosuch", "install it", "run where nosuch is"),
    ),
    "model without such an option": (
        "task.clothes.model_options={hiden=[3]}",
        ('model "mlp"', '"hiden"'),
        '"hidden"',
    ),
    "model for other data": (
        "task.clothes.model=char-lstm",
        ('model "char-lstm"', "(1, 28, 28)"),
        ("tokens", "another model", "other data"),
    ),
    "own model of another shape": (
        "task.clothes.model=own:Narrow",
        ("model", "(1, 28, 28)"),
        ("fit", "7x10"),
    ),
    "unknown loss": ("task.clothes.loss=cross-entrpy", 'loss "cross-entrpy"', '"cross-entropy"'),
    "loss that cannot be imported": (
        "task.clothes.loss=nosuch:loss",
        'loss "nosuch:loss"',
        ("nosuch", "install it", "run where nosuch is"),
    ),
    "loss that is averaged": (
        "task.clothes.loss=own:averaged",
        'loss "own:averaged"',
        ("one value per point", 'reduction="none"'),
    ),
    "loss that fails": ("task.clothes.loss=own:raises", "model", "this loss is not finished"),
    "loss with unknown options": (
        "task.clothes.loss_options={smoothing=0.1}",
        ('loss "cross-entropy"', "0.1"),
        "unexpected keyword argument 'smoothing'",
    ),
    "unknown metric": ("task.clothes.metric=acuracy", 'metric "acuracy"', ('"accuracy"', "module:function")),
    "no such initial weights": (
        "task.clothes.initial_weights=nosuch.safetensors",
        ("initial_weights", "nosuch.safetensors"),
        "no such file",
    ),
    "initial weights of another shape": (
        "task.clothes.initial_weights=other.safetensors",
        ("initial_weights", "other.safetensors"),
        ("fit the model", '"layers.0.weight"'),
    ),
    "initial weights that are none": (
        "task.clothes.initial_weights=experiment.toml",
        ("initial_weights", "experiment.toml"),
        ("fit the model", "header"),
    ),
    "partition larger than the pool": (
        "task.clothes.partition.sizes=5000",
        ("partition", "60000", "6000"),
        ("disjoint = false", "lower sizes", "more data"),
    ),
    "natural groups that there are not": (
        "task.clothes.partition=natural",
        ("partition", '"natural"'),
        ("groups", "another kind", "other data"),
    ),
    "more classes than labels": (
        'task.clothes.partition={kind="classes",classes=11}',
        ("partition", "11 classes", "10 labels"),
        "lower classes",
    ),
    "too few held-out points": (
        "evaluation.validation_share=0.001",
        ("100", "evaluation.validation_share = 0.001"),
        "more points",
    ),
}


@pytest.mark.parametrize("mistake", IN_A_TASK)
def test_a_task_that_cannot_be_had_is_told_by_name_before_anything_is_written(here, mistake):
    override, place, remedy = IN_A_TASK[mistake]
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
    refuses(line.removeprefix('task "clothes": '), place, remedy)


RUN, COMPARE = ("run", "experiment.toml"), ("compare", "experiment.toml")

# Mistakes on the command line: its words, the place, the remedy.
COMMANDS = {
    "missing file": (("run", "nosuch.toml"), "nosuch.toml", ("no such file", "fedmux init")),
    "folder for a file": (("run", "."), ".: ", ("read", "directory")),
    "not text": (("run", "bytes.toml"), "bytes.toml", ("read", "utf-8")),
    "empty override": ((*RUN, "--set", "rounds"), '"rounds"', ("key=value", "population.clients=50")),
    "override of a value's inside": ((*RUN, "--set", "rounds.x=1"), '"rounds.x=1"', "set rounds"),
    "override of an unknown key": ((*RUN, "--set", "rouds=1"), ("experiment.toml", '"rouds"'), '"rounds"'),
    "override of an unknown task": (
        (*RUN, "--set", "task.cloths.learning_rate=1"),
        ('"task.cloths.learning_rate=1"', '"cloths"'),
        "clothes, digits",
    ),
    "override that spoils the tasks": (
        (*RUN, "--set", "task=5", "--set", "task.learning_rate=1"),
        ("task", "5"),
        "list",
    ),
    "override without a value": ((*RUN, "--set"), "--set", ("argument", "--help")),
    "unknown command": (("trian",), "trian", "--help"),
    "unknown option": ((*RUN, "--sed", "1"), "--sed", "--help"),
    "missing argument": (("run",), "EXPERIMENT", ("Missing", "--help")),
    "too many arguments": ((*RUN, "more"), "more", ("extra", "--help")),
    "seeds that are none": ((*COMPARE, "--seeds", "x"), '--seeds "x"', "0-4"),
    "seeds upside down": ((*COMPARE, "--seeds", "4-0"), '--seeds "4-0"', "0-4"),
    "a seed twice": ((*COMPARE, "--seeds", "1,1"), "random-seed-1", ("once", '"label"')),
    "a method twice": ((*COMPARE, "--methods", "full,full"), "full-seed-0", ("once", '"label"')),
    "an axis without values": ((*COMPARE, "--vary", "rounds"), '--vary "rounds"', "key=a,b"),
    "an axis of nothing": ((*COMPARE, "--vary", "=1,2"), '--vary "=1,2"', "key=a,b"),
    "an axis with a bad value": ((*COMPARE, "--vary", "rounds=2,x"), ("rounds", "'x'"), "integer"),
    "an axis of an unknown key": ((*COMPARE, "--vary", "rouds=2"), '"rouds"', '"rounds"'),
    "an unknown method to compare": (
        (*COMPARE, "--methods", "full,randm"),
        ("method", '"randm"'),
        ('"random"', "full"),
    ),
    "a baseline that is not compared": (
        (*COMPARE, "--methods", "random,full", "--baseline", "fedavg"),
        'baseline "fedavg"',
        "random, full",
    ),
    "no number of runs": ((*COMPARE, "--parallel", "all"), ("--parallel", "all"), ("integer", "--help")),
    "nothing to resume": (("resume", "nosuch"), "nosuch", ("run folder", "fedmux list")),
    "a file to resume": (("resume", "experiment.toml"), "experiment.toml", ("run folder", "fedmux list")),
    "an experiment's folder to resume": (("resume", "."), ".: ", ("run folder", "fedmux list")),
    "nothing to show": (("show", "nosuch"), "nosuch", ("run folder", "fedmux list")),
    "nothing to list": (("list",), "runs", ("no such folder", "fedmux run")),
    "a file that is there": (("init", "experiment.toml"), "experiment.toml", ("exists", "another")),
    "a folder that is not there": (("init", "nosuch/experiment.toml"), "nosuch/experiment.toml", "No such"),
    "unknown data to get": (("data", "get", "nosuch"), '"nosuch"', ("fashion-mnist", "cifar10")),
    "no data to add": (("data", "add", "mine", "nosuch.npz"), "nosuch.npz", "exist"),
    "run below a file": ((*RUN, "-o", "experiment.toml/run"), "experiment.toml/run", "Not a directory"),
    "run in place of a file": ((*RUN, "-o", "bytes.toml"), "bytes.toml", ("written", "exists")),
    "compare below a file": ((*COMPARE, "-o", "experiment.toml/c"), "experiment.toml/c", "Not a directory"),
    "run in a folder that is in use": ((*RUN, "-o", "used"), "used", ("not empty", "-o")),
    "compare in a folder that is in use": ((*COMPARE, "-o", "used"), "used", ("not empty", "-o")),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_mistake_on_the_command_line_is_told_in_one_line(here, mistake):
    arguments, place, remedy = COMMANDS[mistake]
    (here / "bytes.toml").write_bytes(b"\xff\xfe")
    (here / "used").mkdir()
    (here / "used" / "thesis.tex").write_text("precious")
    refuses(refusal(here, *arguments), place, remedy)
    assert (here / "used" / "thesis.tex").read_text() == "precious"


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
    refuses(line, "run: ", ("not empty", "fedmux resume"))
    assert files(here / "run") == before


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
