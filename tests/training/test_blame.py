"""What a user's own code raises during a run: one line, all of it in the folder, and the run goes on."""

from pathlib import Path

import pytest

from commands import fedmux, small_experiment
from conftest import experiment_of
from fedmux.runs.rounds import Round
from fedmux.training.running import run
from refusals import refuses

FILE = small_experiment(rounds=3, checkpoint_every=1)
MINE = """\
import sys

from torch import is_grad_enabled, nn
from torch.nn.functional import cross_entropy


class Net(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def forward(self, x):
        return super().forward(x.flatten(1))


class Breaks(Net):
    def forward(self, x):
        if is_grad_enabled():
            raise RuntimeError("no such layer\\nat all\\nanywhere")
        return super().forward(x)


class Quits(Net):
    def forward(self, x):
        if is_grad_enabled():
            sys.exit(0)
        return super().forward(x)


def loss(outputs, targets):
    if is_grad_enabled():
        raise LookupError("first\\nsecond")
    return cross_entropy(outputs, targets, reduction="none")
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "experiment.toml").write_text(FILE)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


CHANGES = {
    "task.digits.model=mine:Breaks": ("RuntimeError: no such layer", ("at all", "anywhere", "mine.py")),
    "task.digits.model=mine:Quits": ("SystemExit: 0", ("mine.py", "sys.exit(0)")),
    "task.digits.loss=mine:loss": ("LookupError: first", ("second", "in loss", "mine.py")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_line_says_what_failed_and_where_all_of_it_is(here: Path, change: str) -> None:
    cause, whole = CHANGES[change]
    ended = fedmux("run", "experiment.toml", "-q", "-o", "run", "--set", change, cwd=here)
    refuses(ended.refusal(), ('task "digits"', "client "), (cause, "run/error.log", "`fedmux resume run`"))
    log = (here / "run" / "error.log").read_text()
    assert log.startswith("Traceback") and all(part in log for part in whole)
    (here / "mine.py").write_text(MINE.replace("is_grad_enabled():", "False:"))
    fedmux("resume", "run", "-q", cwd=here).done()
    assert not (here / "run" / "error.log").exists()


def test_a_cell_s_log_names_the_file_too(here: Path) -> None:
    arguments = ("--set", "task.digits.model=mine:Breaks", "--seeds", "0", "-q", "-o", "c")
    line = fedmux("compare", "experiment.toml", *arguments, cwd=here).refusal()
    log = "c/runs/random-seed-0/error.log"
    refuses(line, ("random-seed-0", 'task "digits"'), ("no such layer", log))
    assert "anywhere" in (here / log).read_text()
    assert log in (here / "c/runs/random-seed-0.log").read_text()


def test_before_there_is_a_folder_all_of_it_is_in_a_temporary_file(here: Path) -> None:
    (here / "mine.py").write_text('def points():\n    raise RuntimeError("first\\nsecond\\nthird")\n')
    (here / "logs").mkdir()
    change = ("--set", "task.digits.data=mine:points")
    environment = {"TMPDIR": str(here / "logs")}
    ended = fedmux("run", "experiment.toml", "-o", "run", *change, cwd=here, environment=environment)
    refuses(ended.refusal(), ('task "digits"', "mine:points"), ("RuntimeError: first", "all of it is in"))
    (log,) = (here / "logs").iterdir()
    assert str(log) in ended.err
    assert all(part in log.read_text() for part in ("mine.py", "first", "second", "third"))
    assert not (here / "run").exists()


def test_what_an_observer_raises_reaches_who_called_run(tmp_path: Path) -> None:
    """So that a search over settings can end a run that leads nowhere."""

    class Pruned(Exception):
        pass

    def observer(entry: Round) -> None:
        if entry.round == 2:
            raise Pruned

    with pytest.raises(Pruned):
        run(experiment_of(), tmp_path / "run", observers=[observer], notice=lambda line: None)
    assert not (tmp_path / "run" / "error.log").exists()
