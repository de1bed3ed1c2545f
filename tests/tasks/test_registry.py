"""Modules by name and users' own modules: what is built, what is refused and with which line."""

import sys
from pathlib import Path

import pytest
from torch import nn

from fedmux.errors import FedmuxError
from fedmux.tasks import build
from fedmux.tasks.cnn import Cnn, CnnSmall

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


def refusal(name: str, shape: tuple[int, ...] = (1, 8, 8), **options: object) -> str:
    with pytest.raises(FedmuxError) as error:
        made(name, shape, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


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
    known = "known: cnn, cnn-small, mlp, resnet18, char-lstm, or your own module:Class"
    assert refusal("resnet-18") == f'model "resnet-18" is unknown (did you mean "resnet18"?); {known}'
    assert refusal("transformer") == f'model "transformer" is unknown; {known}'


def test_an_unknown_option_brings_the_known_ones() -> None:
    assert refusal("cnn", kernel=5) == (
        'model "cnn" has no option "kernel" (did you mean "kernel_size"?); options: kernel_size'
    )
    assert refusal("mlp", classes=3) == 'model "mlp" has no option "classes"; options: hidden'


def test_an_option_of_a_wrong_value_is_refused() -> None:
    assert refusal("cnn", kernel_size=2) == 'model "cnn": kernel_size must be odd and > 0, got 2'
    assert refusal("mlp", (4,), hidden=3) == (
        'model "mlp" cannot be built with inputs = 4, classes = 5, hidden = 3: '
        "TypeError: 'int' object is not iterable"
    )


@pytest.mark.parametrize("name", ["cnn", "cnn-small", "resnet18"])
@pytest.mark.parametrize("shape", [(64,), (8, 8), (1, 3, 8), (1, 8, 3), (2, 1, 8, 8)])
def test_image_models_refuse_other_inputs(name: str, shape: tuple[int, ...]) -> None:
    assert refusal(name, shape) == (
        f'model "{name}" needs images (channels, height, width) of at least 4 x 4 pixels, '
        f"got inputs of shape {shape}; take another model or other data"
    )


def test_the_lstm_refuses_other_inputs() -> None:
    assert refusal("char-lstm") == (
        'model "char-lstm" needs sequences of tokens (length,), got inputs of shape (1, 8, 8); '
        "take another model or other data"
    )


@pytest.mark.parametrize("name", ["Plain", "ready"])
def test_what_is_no_module_class_is_refused(name: str) -> None:
    assert refusal(f"own_models:{name}") == (
        f'model "own_models:{name}" is neither a subclass of torch.nn.Module nor a function that returns a '
        "module; name one"
    )


def test_a_function_that_returns_something_else_is_refused() -> None:
    assert refusal("own_models:wrong") == ('model "own_models:wrong" must return a torch.nn.Module, got int')


def test_a_users_class_that_refuses_its_options_is_named() -> None:
    assert refusal("own_models:Fixed", width=3) == (
        'model "own_models:Fixed" cannot be built with width = 3: '
        "TypeError: Fixed.__init__() got an unexpected keyword argument 'width'"
    )


def test_a_function_without_a_signature_is_called_with_the_options_alone() -> None:
    assert refusal("torch:zeros", size=[2]) == (
        'model "torch:zeros" must return a torch.nn.Module, got Tensor'
    )


def test_a_module_that_cannot_be_imported_is_refused() -> None:
    assert refusal("own_absent:Net") == (
        'model "own_absent:Net": no module own_absent; install it, or run where own_absent is'
    )
