"""A user's own code: import it from `my_models:Net`, say what it is called, and where it failed."""

import difflib
import functools
import importlib
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmux.errors import FedmuxError

FAILURES = (Exception, SystemExit)  # what a user's code can raise: none of it may end fedmux without a word


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
    except FAILURES as error:
        raise FedmuxError(
            f'{what} "{reference}": importing {module_name} failed: {first_line(error)}; fix the module'
        ) from error
    try:
        return getattr(module, name)
    except AttributeError as error:
        hint = closest(name, [public for public in vars(module) if not public.startswith("_")])
        raise FedmuxError(f'{what} "{reference}": module {module_name} has no {name}{hint}') from error


def reference_to(thing: object) -> str:
    """`module:name`, if that is how to import it; else `<name>`, as only this process has it."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(name, str) and isinstance(module, str) and module != "__main__":
        found = getattr(sys.modules.get(module), name, None)
        if found is thing:
            return f"{module}:{name}"
    return f"<{name_of(thing)}>"


def only_in_python(text: str) -> bool:
    """Whether a name from a run folder stands for what only the process that began the run had."""
    return text.startswith("<") and text.endswith(">")


def name_of(thing: object) -> str:
    """What to call a user's class, function or object in a message."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, functools.partial):
        return f"partial of {name_of(thing.func)}"
    return str(getattr(thing, "__name__", type(thing).__name__)).strip("<>")


def closest(name: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)` if a known name is close, else the empty string."""
    matches = difflib.get_close_matches(name, known, n=1)
    return f' (did you mean "{matches[0]}"?)' if matches else ""


def first_line(error: BaseException) -> str:
    """An exception in one line: its type and the first line of its text."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_in_own_code(error: BaseException | None) -> str | None:
    """`losses.py, line 7, in focal`: where a user's code raised this or its cause; None if it did not."""
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        if own := [frame for frame in frames if _is_users_own(frame.filename)]:
            return f"{Path(own[-1].filename).name}, line {own[-1].lineno}, in {own[-1].name}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def _is_users_own(file: str) -> bool:
    """Neither fedmux, nor Python's, nor an installed package's."""
    if file.startswith("<"):  # typed in, or made by a program
        return file == "<stdin>" or file.startswith("<ipython")
    return not any(Path(file).is_relative_to(root) for root in _roots())


@functools.cache
def _roots() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    installed = {Path(paths[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return (Path(__file__).parent, *installed)


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
