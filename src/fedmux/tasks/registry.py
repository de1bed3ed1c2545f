"""Modules by name: ours in one table, the user's own as `module:Class`."""

import inspect
import math
from collections.abc import Callable, Mapping

from torch import nn

from fedmux.errors import FedmuxError
from fedmux.importing import FAILURES, closest, first_line, import_object, name_of
from fedmux.tasks.char_lstm import CharLstm
from fedmux.tasks.cnn import Cnn, CnnSmall
from fedmux.tasks.mlp import Mlp
from fedmux.tasks.resnet import ResNet18

Shape = tuple[int, ...]
FACTORY = (
    "a torch.nn.Module class or a function that returns a module, called with model_options and, if it has "
    "parameters of these names, input_shape and outputs"
)


def _image(shape: Shape, outputs: int) -> dict[str, int]:
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise FedmuxError(
            "needs images (channels, height, width) of at least 4 x 4 pixels, "
            f"got inputs of shape {shape}; take another model or other data"
        )
    channels, height, width = shape
    return {"channels": channels, "height": height, "width": width, "classes": outputs}


def _image_of_any_size(shape: Shape, outputs: int) -> dict[str, int]:
    image = _image(shape, outputs)
    return {"channels": image["channels"], "classes": outputs}


def _flat(shape: Shape, outputs: int) -> dict[str, int]:
    return {"inputs": math.prod(shape), "classes": outputs}


def _tokens(shape: Shape, outputs: int) -> dict[str, int]:
    if len(shape) != 1:
        raise FedmuxError(
            f"needs sequences of tokens (length,), got inputs of shape {shape}; "
            "take another model or other data"
        )
    return {"classes": outputs}


# By name: the class, and its arguments that follow from the data. Its other parameters are the options.
MODULES: Mapping[str, tuple[type[nn.Module], Callable[[Shape, int], dict[str, int]]]] = {
    "cnn": (Cnn, _image),
    "cnn-small": (CnnSmall, _image),
    "mlp": (Mlp, _flat),
    "resnet18": (ResNet18, _image_of_any_size),
    "char-lstm": (CharLstm, _tokens),
}


def build(
    name: str | Callable[..., object],
    *,
    input_shape: tuple[int, ...],
    outputs: int,
    options: dict[str, object],
) -> nn.Module:
    """The module `name` for inputs of `input_shape` (without the batch) and this number of outputs.

    A user's `module:Class`, class or function is called with the options and, if it has parameters of these
    names, `input_shape` and `outputs`. Initial weights come from torch's own generator.
    """
    what = f'model "{name_of(name)}"'
    if not isinstance(name, str):
        return _build_own(what, name, input_shape, outputs, options)
    if ":" in name:
        return _build_own(what, import_object(name, "model"), input_shape, outputs, options)
    if name not in MODULES:
        hint = closest(name, list(MODULES))
        raise FedmuxError(f"{what} is unknown{hint}; known: {', '.join(MODULES)}, or your own module:Class")
    module, arguments = MODULES[name]
    try:
        given = arguments(input_shape, outputs)
    except FedmuxError as error:
        raise FedmuxError(f"{what} {error}") from error
    known = [parameter for parameter in inspect.signature(module).parameters if parameter not in given]
    for option in options:
        if option not in known:
            raise FedmuxError(
                f'{what} has no option "{option}"{closest(option, known)}; options: {", ".join(known)}'
            )
    return _call(what, module, {**given, **options})


def _build_own(what: str, found: object, shape: Shape, outputs: int, options: dict[str, object]) -> nn.Module:
    if isinstance(found, nn.Module):
        raise FedmuxError(f"{what} is a module already; give its class, or a function that makes a new one")
    if not callable(found) or (isinstance(found, type) and not issubclass(found, nn.Module)):
        raise FedmuxError(f"{what} is neither a subclass of torch.nn.Module nor a function; give {FACTORY}")
    offered: dict[str, object] = {"input_shape": shape, "outputs": outputs}
    given = {key: value for key, value in offered.items() if key in _named_parameters(found)}
    return _call(what, found, {**given, **options})


def _named_parameters(factory: Callable[..., object]) -> set[str]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # functions of extension modules may have no signature
        return set()
    return {key for key, parameter in parameters.items() if parameter.kind in named}


def _call(what: str, factory: Callable[..., object], arguments: dict[str, object]) -> nn.Module:
    """The module, or a one-line error that says why it cannot be built with these arguments."""
    try:
        module = factory(**arguments)
    except FedmuxError as error:
        raise FedmuxError(f"{what}: {error}") from error
    except FAILURES as error:
        given = ", ".join(f"{key} = {value!r}" for key, value in arguments.items()) or "no arguments"
        raise FedmuxError(f"{what} cannot be built with {given}: {first_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise FedmuxError(f"{what} must return a torch.nn.Module, got {type(module).__name__}")
    return module
