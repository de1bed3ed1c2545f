"""The rules of the house, docs/architecture.md: who may import whom, and how large things may be.

The code is read as text, by docs/house.py. Complexity and numbers of parameters are left to ruff.
"""

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from house import PICTURE, SOURCES, Import, imports, levels, modules, room  # noqa: E402

ROOT_MODULES, MODULE_LINES, FUNCTION_LINES = 10, 320, 50
ENTRANCES = (
    "__init__",
    "__main__",
)  # above all levels: `fedmux` gives names, `python -m fedmux` runs the CLI
WRITERS = ("fedmux.runs.writing", "fedmux.runs.environment")  # of `runs`; everything else there reads
READERS = ("runs", "report", "ui")
READING_VERBS = ("show", "report", "ui")  # of `cli`


def at(module: str, line: int) -> str:
    return f"{modules()[module].path.relative_to(ROOT)}:{line}"


def report(problems: Iterable[str]) -> None:
    found = list(problems)
    assert not found, "\n" + "\n".join(found)


# Who may import whom


def test_every_package_has_its_row_in_the_table_of_levels():
    rooms = {room(module) for module in modules()} - set(ENTRANCES)
    report(
        f"docs/architecture.md: its table lacks `{name}`; add a row" for name in sorted(rooms - set(levels()))
    )
    report(
        f"docs/architecture.md: `{name}` is gone; remove its row" for name in sorted(set(levels()) - rooms)
    )


def test_imports_go_down_the_levels():
    """Within a package, or to a lower level; imports inside functions and for type checkers count as well."""
    report(
        f"{at(one.source, one.line)} imports {one.target}, but {room(one.target)} is not below "
        f"{room(one.source)} in the table of docs/architecture.md; move what is needed down, or pass it in"
        for one in imports()
        if one.inside and room(one.source) not in ENTRANCES and not goes_down(one)
    )


def goes_down(one: Import) -> bool:
    source, target = room(one.source), room(one.target)
    return source == target or levels().get(target, sys.maxsize) < levels()[source]


def test_nothing_imports_the_command_line_but_main():
    report(
        f"{at(one.source, one.line)} imports {one.target}; the command line only speaks: "
        "move what is needed into a package below it"
        for one in imports()
        if room(one.target) == "cli" and one.inside and room(one.source) not in ("cli", "__main__")
    )


def test_no_modules_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {module: set() for module in modules()}
    for one in imports():
        if one.inside and one.source != one.target:
            graph[one.source].add(one.target)
    report(
        f"{' -> '.join(circle)}: move what both need into a module that imports neither"
        for circle in circles(graph)
    )


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c", "b"]]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One way round for each circle that a walk along the imports meets."""
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> None:
        if module in path:
            found.append([*path[path.index(module) :], module])
        elif module not in done:
            for target in sorted(graph[module]):
                walk(target, [*path, module])
            done.add(module)

    for module in graph:
        walk(module, [])
    return found


# Reading results needs no torch


def is_reader(module: str) -> bool:
    verb = module.removeprefix("fedmux.cli.") in READING_VERBS
    return verb or (room(module) in READERS and module not in WRITERS)


def with_parents(module: str) -> list[str]:
    """Importing a module imports the packages it is in."""
    parts = module.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def test_readers_of_results_import_no_torch():
    """Followed through all imports that are made when a module is loaded."""
    loads = [
        (one.source, name, one.line)
        for one in imports()
        if one.at == "top"
        for name in with_parents(one.target)
    ]
    loads += [(module, package, 1) for module in modules() for package in with_parents(module)[:-1]]
    users: dict[str, list[str]] = {}
    for module, name, _ in loads:
        users.setdefault(name, []).append(module)
    way = {name: [name] for name in ("torch", "safetensors.torch")}  # from a module to torch
    front = list(way)
    while front:
        name = front.pop(0)
        for user in users.get(name, []):
            if user not in way:
                way[user] = [user, *way[name]]
                front.append(user)
    report(
        f"{at(module, line)} loads torch ({' -> '.join(way[name])}), but reading results must not; "
        "import it inside the function that needs it, or under TYPE_CHECKING"
        for module, name, line in loads
        if is_reader(module) and name in way and not is_reader(name)
    )


# How large things may be


def test_the_root_holds_few_modules():
    names = sorted(path.name for path in SOURCES.glob("*.py"))
    assert len(names) <= ROOT_MODULES, (
        f"src/fedmux holds {len(names)} modules; move one into a package: {names}"
    )


def test_modules_are_short():
    report(
        f"{at(module.name, 1)} has {module.lines} lines, above {MODULE_LINES}; divide it: one idea, one file"
        for module in modules().values()
        if module.lines > MODULE_LINES
    )


def test_functions_are_short():
    report(
        f"{at(module.name, node.lineno)} {node.name} has {lines} lines, above {FUNCTION_LINES}; divide it"
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    )


# Complexity and numbers of parameters: C901 and PLR0913 of ruff, with the limits in pyproject.toml.
UNEXPLAINED = re.compile(r"# noqa:[ \w,]*\b(?:C901|PLR0913)[ \w,]*$")


def test_a_function_that_may_be_complex_says_why():
    report(
        f"{at(module.name, number)} silences ruff without a reason; add it: `# noqa: C901  # a case each`"
        for module in modules().values()
        for number, line in enumerate(module.path.read_text("utf-8").splitlines(), 1)
        if "noqa" in line and UNEXPLAINED.search(line)
    )


# One place for each name


def test_names_of_files_in_a_run_folder_are_written_once():
    home = "fedmux.runs.layout"
    names = {
        node.value
        for node in ast.walk(modules()[home].tree)
        if isinstance(node, ast.Constant) and re.fullmatch(r"[\w-]+\.\w+", str(node.value))
    } - {"experiment.toml"}  # also what a user's own file is usually called
    report(
        f'{at(module.name, node.lineno)} writes "{node.value}"; take the name from {home}'
        for module in modules().values()
        if module.name != home
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and node.value in names
    )


TWINS = {"Scaffold"}  # the method and its aggregator: one idea


def test_one_word_is_one_thing():
    homes: dict[str, list[str]] = {}
    for module in modules().values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and node.name not in TWINS:
                homes.setdefault(node.name, []).append(at(module.name, node.lineno))
    report(
        f"{' and '.join(where)} both define {name}; rename one" for name, where in homes.items() if where[1:]
    )


def test_the_picture_shows_every_package():
    text = PICTURE.read_text("utf-8")
    report(
        f"{PICTURE.relative_to(ROOT)} lacks {name}; run `make docs`"
        for name in levels()
        if f">{name}<" not in text
    )
