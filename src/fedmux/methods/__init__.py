"""The registry of methods: a method is a named pair of allocator and aggregator, with options.

Each file of this package registers one method or a family; to add a method, add a file. A user's own method
is any `Method` subclass, named in an experiment as `module:Class`.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from fedmux.aggregation import Aggregator
from fedmux.allocation import Allocator
from fedmux.allocation.contract import check_arguments, check_needs
from fedmux.errors import FedmuxError
from fedmux.importing import closest, import_object, reference_to
from fedmux.runs.scale import Scale
from fedmux.settings import Checked

_REGISTRY: dict[str, type["Method"]] = {}


class Method(Checked):
    """Fields are the method's options; `fedmux methods` shows the docstring's first line."""

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()  # other names, for shells in which `*` is a wildcard
    paper: ClassVar[str] = ""
    unbiased_when: ClassVar[dict[str, object] | None] = None  # options under which E[step] = sum d G

    @property
    def unbiased(self) -> bool:
        """Whether, with these options, the expected step is claimed to be that of full participation."""
        claim = self.unbiased_when
        return claim is not None and all(getattr(self, key) == value for key, value in claim.items())

    def allocator(self) -> Allocator:
        raise _lacks(self, "allocator", Allocator)

    def aggregator(self) -> Aggregator:
        raise _lacks(self, "aggregator", Aggregator)

    def pair(self) -> tuple[Allocator, Aggregator]:
        """Its allocator and its aggregator, checked."""
        allocator, aggregator = self.allocator(), self.aggregator()
        _is_a(Allocator, allocator, f"{type(self).__name__}.allocator")
        _is_a(Aggregator, aggregator, f"{type(self).__name__}.aggregator")
        check_needs(allocator)
        check_arguments(allocator)
        compares = sorted(allocator.needs & {"residual", "projection"})
        keeps_none = type(aggregator).stale is Aggregator.stale
        if keeps_none and (compares or "memory" in allocator.learns):
            named = f'needs names "{compares[0]}"' if compares else 'learns names "memory"'
            raise FedmuxError(
                f"{type(allocator).__name__}.{named}, comparing with the last update "
                f'of each client, and {type(aggregator).__name__} keeps none; ask for "norm"'
            )
        return allocator, aggregator

    def check(self, tasks: int) -> None:
        """Reject an experiment that this method cannot run."""

    def fitted(self, scales: Mapping[str, Scale]) -> tuple["Method", str]:
        """The method adapted to the tasks' metrics (by task name), and a notice for the user, if any.

        FedmuxError if it cannot use one of them.
        """
        return self, ""


def _lacks(method: Method, part: str, kind: type) -> FedmuxError:
    who = type(method).__name__
    return FedmuxError(f"{who} has no {part}(self); define one that returns a fedmux.{kind.__name__}")


def _is_a(kind: type, made: object, maker: str) -> None:
    if isinstance(made, kind):
        return
    if isinstance(made, type):
        name = made.__name__
        raise FedmuxError(f"{maker}() returned the class {name}; return an object of it, {name}(...)")
    what = "nothing" if made is None else type(made).__name__
    raise FedmuxError(f"{maker}() returned {what}; it should return a fedmux.{kind.__name__}")


MethodType = TypeVar("MethodType", bound=type[Method])


def register(method: MethodType) -> MethodType:
    """Class decorator: register a method under its `name`."""
    if method.name in _REGISTRY:
        raise ValueError(f'method "{method.name}" is registered twice')
    _REGISTRY[method.name] = method
    return method


def registry() -> dict[str, type[Method]]:
    """Every method by name, sorted."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def find(name: str) -> type[Method]:
    """The method of this name, or the user's own from `module:Class`."""
    if ":" in name:
        method = import_object(name, "method")
        if not (isinstance(method, type) and issubclass(method, Method)):
            raise FedmuxError(f'method "{name}" must be a subclass of fedmux.Method')
        return method
    known = registry()
    name = next((method.name for method in known.values() if name in method.aliases), name)
    if name not in known:
        own = "your own is module:Class"
        raise FedmuxError(f'unknown method "{name}"{closest(name, known)}; known: {", ".join(known)}; {own}')
    return known[name]


def options(method: Method) -> dict[str, Any]:
    """A method as a table of an experiment file, without options at their default."""
    kind = type(method)
    name = kind.name if _REGISTRY.get(kind.name) is kind else reference_to(kind)
    return {"name": name, **method.model_dump(mode="json", exclude_defaults=True)}
