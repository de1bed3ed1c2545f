"""Import a user's own class or function from a reference such as `my_models:Net`."""

import difflib
import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmux.errors import FedmuxError


def import_object(reference: str, what: str) -> object:
    """The object that `package.module:name` names; `what` is its role in error messages ("model").

    The current directory is searched too.
    """
    module_name, _, name = reference.partition(":")
    if module_name.endswith(".py") and name.isidentifier():
        file = Path(module_name).with_suffix("")
        right = ".".join(file.parts) if all(part.isidentifier() for part in file.parts) else file.name
        raise FedmuxError(
            f'{what} "{reference}": name the module, not a file: write "{right}:{name}"; run where it is'
        )
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise FedmuxError(f'{what} "{reference}": not of the form package.module:name, such as my_code:thing')
    try:
        with current_directory_importable():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise FedmuxError(
                f'{what} "{reference}": {module_name} itself needs {error.name}, which is not installed'
            ) from error
        raise FedmuxError(
            f'{what} "{reference}": no module {error.name}; install it, or run where {module_name} is'
        ) from error
    except Exception as error:
        raise FedmuxError(
            f'{what} "{reference}": importing {module_name} failed: {first_line(error)}; fix the module'
        ) from error
    try:
        return getattr(module, name)
    except AttributeError as error:
        hint = closest(name, [public for public in vars(module) if not public.startswith("_")])
        raise FedmuxError(f'{what} "{reference}": module {module_name} has no {name}{hint}') from error


def closest(name: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)` if a known name is close, else the empty string."""
    matches = difflib.get_close_matches(name, known, n=1)
    return f' (did you mean "{matches[0]}"?)' if matches else ""


def first_line(error: Exception) -> str:
    """An exception in one line: its type and the first line of its text."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def current_directory_importable() -> Iterator[None]:
    """Inside the block, modules in the current directory can be imported."""
    directory = str(Path.cwd())
    sys.path.insert(0, directory)
    importlib.invalidate_caches()  # so that a file written a moment ago is found
    try:
        yield
    finally:
        if directory in sys.path:  # unless the module removed it itself
            sys.path.remove(directory)
