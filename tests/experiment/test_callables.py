"""Classes, functions and lambdas in the place of names: they train, are written down, are asked for again."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedmux
from conftest import interrupted_after
from fedmux.experiment import Experiment
from fedmux.importing import reference_to
from fedmux.methods import registry
from refusals import refused

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
Random = registry()["random"]


class Net(nn.Module):
    """Takes what follows from the data, and an option."""

    def __init__(self, input_shape: tuple[int, ...], outputs: int, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(int(np.prod(input_shape)), width), nn.ReLU(), nn.Linear(width, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def points() -> tuple[np.ndarray, np.ndarray]:
    return X, Y


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, reduction="none")


LAMBDAS: dict[str, Any] = {
    "model": lambda: nn.Linear(3, 2),
    "data": lambda: (X, Y),
    "loss": lambda outputs, targets: loss(outputs, targets),
}


class Mine(Random):  # type: ignore[misc, valid-type]
    """Random, with an option."""

    strength: float = 1.0


def described(**changes: Any) -> Experiment:
    task = {"name": "sign", "data": "digits", "model": "mlp", "learning_rate": 0.1, "local_epochs": 1}
    given = {key: changes.pop(key) for key in ("method", "execution") if key in changes}
    return fedmux.Experiment(
        **{"rounds": 2, "method": "random", "population": {"clients": 4, "rate": 1.0}, **given},
        tasks=[{**task, **changes}],
    )


def trained(folder: Path, **changes: Any) -> fedmux.Run:
    return fedmux.run(described(**changes), folder, notice=lambda line: None)


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"model": Net}, {"model": "test_callables:Net"}),
        ({"model": Net, "model_options": {"width": 2}, "data": points}, {"data": "test_callables:points"}),
        ({"model": functools.partial(Net, width=2), "data": (X, Y)}, {"model": "<partial of Net>"}),
        ({key: LAMBDAS[key] for key in ("model", "data")}, {"model": "<lambda>", "data": "<lambda>"}),
        ({"data": (torch.tensor(X), torch.tensor(Y))}, {"data": "<arrays>"}),
        ({"data": points, "loss": loss}, {"loss": "test_callables:loss"}),
        ({"data": points, "loss": nn.CrossEntropyLoss(reduction="none")}, {"loss": "<CrossEntropyLoss>"}),
    ],
    ids=lambda part: (
        str(part) if isinstance(part, dict) and all(isinstance(value, str) for value in part.values()) else ""
    ),
)
def test_a_task_is_made_of_classes_and_functions(
    tmp_path: Path, changes: dict[str, Any], written: dict[str, str]
) -> None:
    if changes.get("model") is Net and "data" not in changes:
        changes = {**changes, "data": points}
    run = trained(tmp_path / "run", **changes)
    assert run.finished
    assert written.items() <= run.table["task"][0].items()


@pytest.mark.parametrize(
    ("method", "written"),
    [
        (Mine, {"name": "test_callables:Mine"}),
        (Mine(strength=2), {"name": "test_callables:Mine", "strength": 2.0}),
        ({"name": Mine, "strength": 3}, {"name": "test_callables:Mine", "strength": 3.0}),
        (Random, {"name": "random"}),
    ],
    ids=lambda part: (
        str(part) if isinstance(part, dict) and all(isinstance(value, str) for value in part.values()) else ""
    ),
)
def test_a_method_is_a_class_or_an_object(method: Any, written: dict[str, Any]) -> None:
    experiment = described(method=method)
    assert experiment.table()["method"] == written
    assert described(method=experiment.table()["method"]) == experiment


def test_a_class_and_its_name_train_alike(tmp_path: Path) -> None:
    one = trained(tmp_path / "one", model=Net, data=points, loss=loss)
    names = {"model": "test_callables:Net", "data": "test_callables:points", "loss": "test_callables:loss"}
    other = trained(tmp_path / "other", **names)
    for name in ("experiment.toml", "models/sign.safetensors", "allocation.bin"):
        assert (one.path / name).read_bytes() == (other.path / name).read_bytes()


def test_what_can_be_imported_resumes_from_the_folder_alone(tmp_path: Path) -> None:
    with interrupted_after(1):
        trained(tmp_path / "run", model=Net, data=points, loss=loss, method=Mine)
    assert fedmux.resume(tmp_path / "run", notice=lambda line: None).finished


@pytest.mark.parametrize("key", LAMBDAS)
def test_what_cannot_be_imported_is_asked_for_again(tmp_path: Path, key: str) -> None:
    changes = {"data": points, "model": "mlp", key: LAMBDAS[key]}
    with interrupted_after(1):
        trained(tmp_path / "run", **changes)
    with refused(('task 1 "sign"', key, "<lambda>"), "fedmux.resume(folder, experiment=...)"):
        fedmux.resume(tmp_path / "run", notice=lambda line: None)
    again = described(**changes)
    assert fedmux.resume(tmp_path / "run", experiment=again, notice=lambda line: None).finished


def test_a_class_of_a_notebook_may_since_have_become_a_module(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Net, "__module__", "__main__")
    with interrupted_after(1):
        trained(tmp_path / "run", model=Net, data=points)
    monkeypatch.undo()
    other = described(model=functools.partial(Net), data=points)
    with refused(str(tmp_path / "run"), "different experiment"):
        fedmux.resume(tmp_path / "run", experiment=other, notice=lambda line: None)
    same = described(model=Net, data=points)
    assert fedmux.resume(tmp_path / "run", experiment=same, notice=lambda line: None).finished


@pytest.mark.parametrize("key", LAMBDAS)
def test_several_processes_refuse_what_they_cannot_be_sent(tmp_path: Path, key: str) -> None:
    changes = {"data": points, key: LAMBDAS[key], "execution": {"workers": 2}}
    with refused(('task "sign"', key, "lambda"), ("top level of a module", "workers = 1")):
        trained(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "place", "remedy"),
    [
        ({"model": 3}, "model", ("torch.nn.Module", "input_shape", "outputs", "int")),
        ({"loss": 3}, "loss", ("(outputs, targets)", "(batch,)")),
        ({"data": 3}, "data", ("(x, y)", "(x, y, test_x, test_y)", "fedmux.Dataset")),
        ({"data": (X, Y[:10])}, ("data", "60 inputs"), "10 targets"),
        ({"method": dict}, "method", "fedmux.Method"),
    ],
)
def test_what_cannot_be_called_is_told_with_the_signature_that_is_wanted(
    changes: dict[str, Any], place: str, remedy: str
) -> None:
    with refused(place, remedy):
        described(**changes)


@pytest.mark.parametrize(
    ("changes", "place", "remedy"),
    [
        ({"model": Net((3,), 2)}, 'model "Net"', ("class", "function")),
        ({"loss": nn.CrossEntropyLoss}, 'loss "CrossEntropyLoss"', ("(outputs, targets)", "not a class")),
        ({"loss": lambda outputs: outputs}, 'loss "lambda"', ("(outputs, targets)", "(batch,)")),
        ({"data": lambda path: path}, 'data "lambda"', ("function without arguments", "(x, y)")),
    ],
)
def test_what_is_called_in_vain_is_told_with_the_signature_that_is_wanted(
    tmp_path: Path, changes: dict[str, Any], place: str, remedy: str
) -> None:
    with refused(('task "sign"', place), remedy):
        trained(tmp_path / "run", **{"data": points, **changes})
    assert not (tmp_path / "run").exists()


def test_only_what_can_be_imported_again_has_a_name() -> None:
    def inner() -> None: ...

    assert reference_to(Net) == "test_callables:Net"
    assert reference_to(inner) == "<inner>"
    assert reference_to(Net.forward) == "<forward>"
    assert reference_to(np.mean) == "numpy:mean"
