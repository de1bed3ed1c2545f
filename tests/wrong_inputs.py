"""What a wrong input is, and the folder in which all of them are tried: an experiment, a run, many files.

The inputs themselves are in `wrong_files`, `wrong_code` and `wrong_commands`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from commands import fedmux, small_experiment
from refusals import Words

EXPERIMENT = small_experiment(rounds=4, checkpoint_every=1)
RUN, COMPARE = ("run", "experiment.toml"), ("compare", "experiment.toml")


@dataclass(frozen=True)
class Wrong:
    """What is typed, and the words with which the refusal names the place and the remedy."""

    arguments: tuple[str, ...]
    place: Words
    remedy: Words
    start: str = ""  # of the line
    edit: tuple[str, str] | None = None  # of experiment.toml: what is right, and what stands there instead
    environment: Mapping[str, str] = field(default_factory=dict)


def edited(right: str, wrong: str, place: Words, remedy: Words) -> Wrong:
    """A mistake in the file, seen when it is read."""
    return Wrong((*RUN, "-o", "run"), place, remedy, "experiment.toml: ", (right, wrong))


def in_task(overrides: str, place: Words, remedy: Words) -> Wrong:
    """A mistake that only shows once data and models are there; several keys are separated by blanks."""
    given = [part for key in overrides.split(" ") for part in ("--set", f"task.clothes.{key}")]
    return Wrong((*RUN, "-o", "run", *given), place, remedy, 'task "clothes": ')


def scenery(here: Path) -> None:
    """Everything that the wrong inputs mention."""
    for name, text in TEXTS.items():
        (here / name).write_text(text)
    for name, content in BYTES.items():
        (here / name).write_bytes(content)
    for folder in ("used", "empty", "folder.npz", "compared"):
        (here / folder).mkdir()
    (here / "used" / "thesis.tex").write_text("precious")
    (here / "compared" / "comparison.toml").write_text("methods = []\n")
    points = {f"{part}_x": np.zeros((20, 3), np.float32) for part in ("train", "test")}
    labels = {f"{part}_y": np.arange(20) % 2 for part in ("train", "test")}
    np.savez(here / "sound.npz", **points, **labels)
    points["train_x"][7, 1] = np.nan
    np.savez(here / "nan.npz", **points, **labels)
    np.savez(here / "lacks.npz", train_x=points["train_x"], train_y=labels["train_y"])
    objects = np.array([None] * 4, dtype=object)
    np.savez(here / "objects.npz", train_x=objects, train_y=objects, test_x=objects, test_y=objects)
    save_file({"layers.0.weight": torch.zeros(3, 3)}, here / "other.safetensors")
    (here / "experiment.toml").write_text(small_experiment(rounds=1, checkpoint_every=1))
    fedmux(*RUN, "-q", "-o", "done", cwd=here).done()
    shutil.copytree(here / "done", here / "cut")
    (here / "cut" / "summary.json").unlink()
    (here / "experiment.toml").write_text(EXPERIMENT)


BYTES = {
    "bytes.toml": b"\xff\xfe",
    "nul.toml": b"rounds = \x003",
    "mark.toml": b"\xef\xbb\xbfrounds = 3",
    "binary.csv": b"\xff\xfe\x00",
}
TEXTS = {
    "digits.toml": f"x = {'9' * 5000}",
    "deep.toml": f"x = {'[' * 20_000}",
    "text.npz": "not an archive",
    "empty.csv": "",
    "header.csv": "user,a,b\n",
    "numbers.csv": "1,2\n3,4\n",
    "ragged.csv": "user,a,b\nx,1\n",
    "word.csv": "user,a,b\nx,1,cheap\n",
    "negative.csv": "user,a,b\nx,1,-2\n",
    "nan.csv": "user,a,b\nx,1,nan\n",
    "twice.csv": "user,a,b\nx,1,2\ny,1,2\nx,2,1\n",
    "columns.csv": "user,a,a\nx,1,2\n",
    "bids.csv": "user,a,b\nx,1,2\ny,2,1\n",
    "needy.py": "import nosuch\n",
    "broken.py": "def data(:\n",
    "quitter.py": "import sys\nsys.exit(0)\n",
    "own.py": '''\
import sys

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedmux import Dataset, Method

X = np.arange(120.0, dtype=np.float32).reshape(40, 3)
Y = np.arange(40) % 4
number = 3


def changed(values, row, value):
    values = values.copy()
    values[row] = value
    return values


def quits(): sys.exit()
def quits_with_a_word(): sys.exit("no licence")
def fails(): raise RuntimeError("the disk of the laboratory is not mounted\\nsee the wiki")
def fails_without_a_word(): raise ValueError
def asks(path): return path
def table(): return {"x": X, "y": Y}
def three(): return X, Y, X
def ragged(): return [[1.0], [1.0, 2.0]] * 20, Y
def words(): return X, np.array(["cat", "dog"] * 20)
def one_hot(): return X, np.eye(4)[Y]
def one_hot_integers(): return X, np.eye(4, dtype=int)[Y]
def column(): return X, Y[:, None]
def floats(): return X, Y.astype(float)
def fractions(): return X, Y / 3
def huge_label(): return X, changed(Y, 17, 3_000_000_000)
def negative_label(): return X, changed(Y, 31, -1)
def nan(): return changed(X, 33, np.nan), Y
def large(): return changed(X, 29, 1e30), Y
def nan_target(): return X, changed(Y / 3, 23, np.nan)
def unequal(): return X, Y[:30]
def nothing(): return X[:0], Y[:0]
def one_point(): return X[:1], Y[:1]
def a_number(): return 3.0, 4
def unlike_parts(): return X, Y, X[:, :2], Y
def objects(): return np.array([None] * 40), Y
def integers(): return np.zeros((40, 3, 3), np.int64), Y
def tokens(): return np.full((40, 6), 500), Y
def labels_beyond_the_classes(): return Dataset(X, Y + 7, X, Y, "numbers", 10)


class Linear(nn.Module):
    def __init__(self, input_shape, outputs):
        super().__init__()
        self.layer = nn.Linear(int(np.prod(input_shape)), outputs)

    def forward(self, x):
        return self.layer(x.flatten(1))


class Narrow(Linear):
    def __init__(self): super().__init__([7], 10)


class Five(Linear):
    def __init__(self, input_shape): super().__init__(input_shape, 5)


class Pair(Linear):
    def forward(self, x): return super().forward(x), None


class Quits(Linear):
    def forward(self, x): sys.exit(3)


class Fails(Linear):
    def forward(self, x): raise ValueError("wrong\\nin many\\nways")


class FailsWithoutAWord(Linear):
    def forward(self, x): raise ValueError


class Unbuildable(nn.Module):
    def __init__(self): raise KeyError("width")


def no_module(): return None
def quits_early(): raise SystemExit("not today")
ready = Linear((3,), 2)


def averaged(outputs, targets): return cross_entropy(outputs, targets)
def of_one(outputs): return outputs
def a_float(outputs, targets): return 0.5
def loss_quits(outputs, targets): sys.exit()
def loss_fails(outputs, targets): raise RuntimeError("this loss is not finished\\nask me")
class Loss(nn.Module): pass


class Strong(Method):
    """Needs an option."""
    strength: float


class Plain: pass
''',
}
