"""Modules by name and users' own modules: what is built, what is refused and with which line."""

import sys
from pathlib import Path

import pytest
from torch import nn

from fedmux.tasks import build
from fedmux.tasks.cnn import Cnn, CnnSmall
from refusals import Words, refused

OWN = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, input_shape, outputs, hidden=3):
        super().__init__()
        self.given = (input_shape, outputs, hidden)
class Fixed(nn.Module):
    def __init__(self, depth=1):
        super().__init__()
        self.depth = depth
class Bare(nn.Module):
    pass
class Open(nn.Module):
    def __init__(self, **anything):
        super().__init__()
        self.given = anything
def factory(*, outputs):
    return nn.Linear(2, outputs)
def wrong():
    return 3
class Plain:
    pass
ready = Fixed()
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def made(name: str, shape: tuple[int, ...] = (1, 8, 8), **options: object) -> nn.Module:
    return build(name, input_shape=shape, outputs=5, options=options)


def refused_model(name: str, remedy: Words, *where: str, shape=(1, 8, 8), **options: object) -> None:
    with refused((f'model "{name}"', *where), remedy):
        made(name, shape, **options)


def test_names_give_their_modules_with_options() -> None:
    cnn = made("cnn", kernel_size=5)
    assert type(cnn) is Cnn and cnn.layers[0].kernel_size == (5, 5)
    assert type(made("cnn-small")) is CnnSmall


def test_a_users_class_gets_the_shape_and_outputs_where_it_has_such_parameters() -> None:
    assert made("own_models:Net", hidden=7).given == ((1, 8, 8), 5, 7)
    assert made("own_models:Net", outputs=9).given == ((1, 8, 8), 9, 3)
    assert made("own_models:Fixed", depth=2).depth == 2
    assert isinstance(made("own_models:Bare"), nn.Module)
    assert made("own_models:Open", a=1).given == {"a": 1}


def test_a_users_function_may_return_the_module() -> None:
    module = made("own_models:factory")
    assert isinstance(module, nn.Linear) and module.out_features == 5


def test_an_unknown_name_brings_the_known_ones_and_the_closest() -> None:
    known = ("cnn, cnn-small, mlp, resnet18, char-lstm", "module:Class")
    refused_model("resnet-18", ('"resnet18"', *known))
    refused_model("transformer", known)


def test_an_unknown_option_brings_the_known_ones() -> None:
    refused_model("cnn", ('"kernel_size"', "options: kernel_size"), '"kernel"', kernel=5)
    refused_model("mlp", "options: hidden", '"classes"', classes=3)


def test_an_option_of_a_wrong_value_is_refused() -> None:
    refused_model("cnn", "odd and > 0", "kernel_size", "2", kernel_size=2)
    refused_model("mlp", "'int' object is not iterable", "hidden = 3", shape=(4,), hidden=3)


@pytest.mark.parametrize("name", ["cnn", "cnn-small", "resnet18"])
@pytest.mark.parametrize("shape", [(64,), (8, 8), (1, 3, 8), (1, 8, 3), (2, 1, 8, 8)])
def test_image_models_refuse_other_inputs(name: str, shape: tuple[int, ...]) -> None:
    needs = ("(channels, height, width)", "at least 4 x 4", "another model", "other data")
    refused_model(name, needs, str(shape), shape=shape)


def test_the_lstm_refuses_other_inputs() -> None:
    refused_model("char-lstm", ("tokens (length,)", "another model", "other data"), "(1, 8, 8)")


@pytest.mark.parametrize(("name", "remedy"), [("Plain", "torch.nn.Module"), ("ready", "its class")])
def test_what_is_no_module_class_is_refused(name: str, remedy: str) -> None:
    refused_model(f"own_models:{name}", (remedy, "function"))


def test_a_function_that_returns_something_else_is_refused() -> None:
    refused_model("own_models:wrong", "torch.nn.Module", "int")


def test_a_users_class_that_refuses_its_options_is_named() -> None:
    refused_model("own_models:Fixed", "unexpected keyword argument 'width'", "width = 3", width=3)


def test_a_function_without_a_signature_is_called_with_the_options_alone() -> None:
    refused_model("torch:zeros", "torch.nn.Module", "Tensor", size=[2])


def test_a_module_that_cannot_be_imported_is_refused() -> None:
    refused_model("own_absent:Net", ("own_absent;", "install it", "run where own_absent is"))
