"""How a local rule reaches a client: its class by name, its arguments as scalars, its correction.

The client takes the class from fedmux.aggregation or from a module that its own app has imported. It never
imports any other module because a server names it.
"""

import inspect
import sys
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from fedmux.aggregation import LocalRule
from fedmux.aggregation.local_rule import Scalar
from fedmux.errors import FedmuxError
from fedmux.flower.wire import tensor, vectors
from fedmux.importing import import_object
from fedmux.population import Ints

CLASS = "class"  # a word that no argument can have as its name


def put_rule(content: RecordDict, rule: LocalRule | None, name: str, task: int, client: int) -> None:
    """What changes the local steps of a task, if anything does."""
    if rule is None:
        return
    content[f"rule.{name}"] = ConfigRecord({CLASS: _reference(type(rule)), **_arguments(rule)})
    correction = rule.corrections(task, np.array([client]))
    if correction is not None:
        content[f"correction.{name}"] = vectors(correction=correction[0])


def _reference(kind: type[LocalRule]) -> str:
    if kind.__module__ == "__main__" or not kind.__qualname__.isidentifier():
        raise FedmuxError(
            f"the local rule {kind.__name__} cannot be sent to real clients, which import it by name; define "
            "it at the top level of a module of the app"
        )
    return f"{kind.__module__}:{kind.__name__}"


def _arguments(rule: LocalRule) -> dict[str, Scalar]:
    """Those from which the rule can be rebuilt."""
    arguments, reason = rule.arguments(), ""
    try:
        inspect.signature(type(rule)).bind(**arguments)
    except TypeError as error:
        reason = str(error)
    for name, value in arguments.items():
        if type(value) not in (int, float, str, bool):
            reason = f"{name} is a {type(value).__name__}, not a plain number, text or boolean"
    by_default = type(rule).arguments is LocalRule.arguments
    if not reason and by_default and vars(type(rule)(**arguments)) != vars(rule):
        reason = "rebuilt from its attributes it is a different rule"
    if reason:
        raise FedmuxError(
            f"the local rule {type(rule).__name__} cannot be sent to real clients: {reason}; define "
            "arguments() to return what __init__ needs at a client"
        )
    return arguments


class Received(LocalRule):
    """A rule that was rebuilt here, with the correction that came for this client."""

    def __init__(self, rule: LocalRule, correction: Tensor | None) -> None:
        self.rule, self.correction = rule, correction

    def corrections(self, task: int, clients: Ints) -> Tensor | None:
        return None if self.correction is None else self.correction.expand(len(clients), -1)

    def gradient(self, gradient: Tensor, weights: Tensor, start: Tensor, correction: Tensor | None) -> Tensor:
        return self.rule.gradient(gradient, weights, start, correction)


def read_rule(content: RecordDict, name: str) -> LocalRule | None:
    """The reverse of `put_rule`."""
    if f"rule.{name}" not in content.config_records:
        return None
    arguments: dict[str, Any] = dict(content.config_records[f"rule.{name}"])
    if CLASS not in arguments:
        raise FedmuxError(
            "the server sends local rules as another version of fedmux does; install the same one"
        )
    reference = arguments.pop(CLASS)
    kind = _class(reference)
    try:
        rule = kind(**arguments)
    except TypeError as error:
        raise FedmuxError(f'local rule "{reference}": {error}; use the same version as the server') from None
    sent = content.array_records.get(f"correction.{name}")
    return Received(rule, None if sent is None else tensor(sent, "correction"))


def _class(reference: str) -> type[LocalRule]:
    module = reference.partition(":")[0]
    if module not in sys.modules and not module.startswith("fedmux.aggregation."):
        raise FedmuxError(f'local rule "{reference}": import {module} in the client app')
    kind = import_object(reference, "local rule")
    if not (isinstance(kind, type) and issubclass(kind, LocalRule)):
        raise FedmuxError(f'local rule "{reference}": not a subclass of fedmux.LocalRule')
    return kind
