"""Draws images/house.svg and house.png, the packages of fedmux stacked by level: `python docs/house.py`.

The code is read as text, not imported; tests/test_house.py checks the house's rules with what is read here.
Levels are those of the table in architecture.md.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE.parent / "src" / "fedmux"
PAGE, PICTURE = HERE / "architecture.md", HERE / "images" / "house.svg"

ROW = re.compile(r"^\| (\d+) \| `(\w+)(?:/|\.py)` \|", re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    path: Path
    tree: ast.Module
    lines: int


@dataclass(frozen=True)
class Import:
    """One import: of a module of fedmux by its full name, or of anything else."""

    source: str
    target: str
    line: int
    at: str  # "top", "function" (lazy) or "typing" (only for type checkers)

    @property
    def inside(self) -> bool:
        return self.target.partition(".")[0] == "fedmux"


@functools.cache
def levels() -> dict[str, int]:
    """The level of each package and each module at the root, lowest first."""
    return {room: int(level) for level, room in ROW.findall(PAGE.read_text("utf-8"))}


def room(module: str) -> str:
    """The package, or the module at the root, that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


@functools.cache
def modules() -> dict[str, Module]:
    """Every module by its full name; folders without an __init__.py are not part of the package."""
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        if (path.parent / "__init__.py").exists():
            name = ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts).removesuffix(".__init__")
            text = path.read_text("utf-8")
            found[name] = Module(name, path, ast.parse(text), len(text.splitlines()))
    return found


@functools.cache
def imports() -> list[Import]:
    return [
        Import(module.name, target, node.lineno, at)
        for module in modules().values()
        for node, at in _statements(module.tree.body, "top")
        for target in _targets(node)
    ]


def _statements(nodes: Iterable[ast.AST], at: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Import statements, and where they stand."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, at
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(node.body, "typing" if at == "typing" else "function")
        elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield from _statements(node.body, "typing")
            yield from _statements(node.orelse, at)
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _statements(ast.iter_child_nodes(node), at)


def _targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    named = [f"{node.module}.{name.name}" for name in node.names]
    return sorted({name if name in modules() else str(node.module) for name in named})
