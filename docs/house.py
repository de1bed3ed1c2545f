"""Draws images/house.svg and house.png, the packages of fedmux stacked by level: `python docs/house.py`.

The code is read as text, not imported; tests/test_house.py checks the house's rules with what is read here.
Levels are those of the table in architecture.md.
"""

import ast
import functools
import math
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

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


# The picture

WIDTH, MARGIN, LEFT = 800, 8, 36  # pixels; LEFT has the numbers of the levels
ROOT_OF_LINES, NARROWEST = 6.9, 152  # a box is as wide as its lines' square root says, or as its text needs
FOUNDATION = 2  # everything may use the levels up to this one: no arrows lead there
GAP, BETWEEN, WITHIN, PADDING = 14, 24, 20, 7  # between boxes, levels and rows of a level; inside a band
NAME, TEXT, LINE = 13, 10.5, 13  # sizes of letters, height of a line
INK, SOFT, PALE, BAND = "#222222", "#555555", "#8A8A8A", "#F3F4F6"


@dataclass
class Box:
    """A package, or a module at the root."""

    name: str
    level: int
    lines: int
    colour: str
    width: float
    purpose: list[str]  # wrapped
    x: float = 0

    def port(self, place: int, of: int) -> float:
        """Where the `place`-th of so many arrows meets an edge."""
        return self.x + self.width * (0.1 + 0.8 * (place + 1) / (of + 1))

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass
class Row:
    """Boxes side by side; a level has one or two rows."""

    boxes: list[Box]
    top: float = 0
    lanes: list[float] = field(default_factory=list)  # where arrows pass it

    @property
    def bottom(self) -> float:
        return self.top + 24 + LINE * max(len(box.purpose) for box in self.boxes)

    @property
    def width(self) -> float:
        return sum(box.width for box in self.boxes) + GAP * (len(self.boxes) - 1)

    def lane(self, wanted: float, apart: float) -> float:
        """The free place nearest to where an arrow would like to pass; beside other arrows if possible."""
        ends = [
            LEFT - 6,
            *(end for box in self.boxes for end in (box.x - 4, box.x + box.width + 4)),
            WIDTH - 12,
        ]
        free = [
            low + step * apart
            for low, high in zip(ends[::2], ends[1::2])
            for step in range(int((high - low) / apart) + 1)
        ]
        open_ones = [x for x in free if all(abs(x - lane) >= apart - 0.01 for lane in self.lanes)]
        self.lanes.append(min(open_ones or free, key=lambda x: abs(x - wanted)))
        return self.lanes[-1]


def boxes() -> list[Box]:
    from fedmux.report.charts.style import COLOURS

    lines: Counter[str] = Counter()
    for module in modules().values():
        lines[room(module.name)] += module.lines
    lines = Counter({name: rounded(number) for name, number in lines.items()})
    found = []
    for number, (name, level) in enumerate(levels().items()):
        width = max(NARROWEST, ROOT_OF_LINES * math.sqrt(lines[name])) if level > FOUNDATION else 232
        says = (ast.get_docstring(modules()[f"fedmux.{name}"].tree) or "").splitlines()[0].rstrip(".:")
        purpose = textwrap.wrap(says.replace("`", ""), int((width - 18) / (0.5 * TEXT)))
        found.append(Box(name, level, lines[name], COLOURS[number % len(COLOURS)], width, purpose))
    return found


def rounded(lines: int) -> int:
    """To hundreds, or tens if there are few, so that a small change leaves the picture as it is."""
    return max(10, round(lines, -2 if lines >= 100 else -1))


def stacked(found: list[Box]) -> list[Row]:
    """The boxes in rows, from top to bottom, each with its place."""
    rows: list[Row] = []
    there = WIDTH - LEFT - MARGIN
    for box in found:
        last = rows[-1] if rows else None
        if last and last.boxes[0].level == box.level and last.width + GAP + box.width <= there:
            last.boxes.append(box)
        else:
            rows.append(Row([box]))
    y = MARGIN + PADDING
    for row, after in zip(rows, [*rows[1:], None]):
        row.top, x = y, LEFT + (there - row.width) / 2
        for box in row.boxes:
            box.x = x
            x += box.width + GAP
        same = after is not None and after.boxes[0].level == row.boxes[0].level
        y = row.bottom + (WITHIN if same else BETWEEN + 2 * PADDING)
    return rows


def arrows() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Imports between packages: those that no way over other packages implies, and the rest."""
    below: dict[str, set[str]] = defaultdict(set)
    for one in imports():
        source, target = room(one.source), room(one.target)
        if one.inside and FOUNDATION < levels().get(target, 0) < levels().get(source, 0):
            below[source].add(target)

    @functools.cache
    def reached(source: str) -> frozenset[str]:
        return frozenset(below[source]).union(*(reached(target) for target in below[source]))

    pairs = {(source, target) for source in levels() for target in below[source]}
    implied = {(s, t) for s, t in pairs if any(t in reached(other) for other in below[s] - {t})}
    return sorted(pairs - implied), sorted(implied)


def paths(rows: list[Row], pairs: list[tuple[str, str]], apart: float, style: str) -> list[str]:
    """From the foot of one box to the top of another, around the boxes between them."""
    at = {box.name: (number, box) for number, row in enumerate(rows) for box in row.boxes}
    leaving, arriving = defaultdict(list), defaultdict(list)
    for source, target in sorted(pairs, key=lambda pair: (at[pair[1]][1].middle, at[pair[0]][1].middle)):
        leaving[source].append(target)
    for source, target in sorted(pairs, key=lambda pair: at[pair[0]][1].middle):
        arriving[target].append(source)
    drawn = []
    for source, target in sorted(pairs, key=lambda pair: at[pair[1]][0] - at[pair[0]][0]):
        (first, one), (last, other) = at[source], at[target]
        x, y = one.port(leaving[source].index(target), len(leaving[source])), rows[first].bottom
        to = other.port(arriving[target].index(source), len(arriving[target]))
        way = f"M{x:.1f},{y:.1f}"
        for row in rows[first + 1 : last]:
            lane = row.lane(x + (to - x) / 3, apart)
            way += bend(x, y, lane, row.top) + f" L{lane:.1f},{row.bottom:.1f}"
            x, y = lane, row.bottom
        way += bend(x, y, to, rows[last].top - 1.5)
        drawn.append(f'<path d="{way}" fill="none" stroke="{one.colour}" {style}/>')
    return drawn


def bend(x: float, y: float, to: float, end: float) -> str:
    half = (y + end) / 2
    return f" C{x:.1f},{half:.1f} {to:.1f},{half:.1f} {to:.1f},{end:.1f}"


def picture() -> str:
    rows = stacked(boxes())
    height = rows[-1].bottom + PADDING + MARGIN
    heads = [
        f'<marker id="{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0,0.5 L8,4 L0,7.5 Z" fill="{colour}"/></marker>'
        for colour in sorted({box.colour for row in rows for box in row.boxes})
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif">',
        f"<defs>{''.join(heads)}</defs>",
        frame(0, 0, WIDTH, height, 'fill="white"'),
    ]
    for level in sorted(set(levels().values())):
        here = [row for row in rows if row.boxes[0].level == level]
        top, bottom = here[0].top - PADDING, here[-1].bottom + PADDING
        parts += [
            frame(MARGIN, top, WIDTH - 2 * MARGIN, bottom - top, f'rx="6" fill="{BAND}"'),
            words(MARGIN + 7, (top + bottom) / 2 + 4, 11, PALE, str(level)),
        ]
    drawn, implied = arrows()
    parts += paths(rows, implied, 2.5, 'stroke-width="0.7" stroke-opacity="0.3"')
    for row in rows:
        row.lanes.clear()
    parts += [
        re.sub(r'stroke="#(\w+)"', r'stroke="#\1" marker-end="url(#\1)"', path)
        for path in paths(rows, drawn, 6, 'stroke-width="1.7"')
    ]
    for row in rows:
        for box in row.boxes:
            parts += package(box, row.top, row.bottom)
    return "\n".join([*parts, "</svg>"]) + "\n"


def package(box: Box, top: float, bottom: float) -> list[str]:
    x = box.x + 9
    return [
        frame(
            box.x,
            top,
            box.width,
            bottom - top,
            f'rx="5" fill="white" stroke="{box.colour}" stroke-width="1.5"',
        ),
        words(x, top + 16, NAME, INK, box.name, 'font-weight="bold"'),
        words(box.x + box.width - 8, top + 16, 10, PALE, f"{box.lines:,}", 'text-anchor="end"'),
        *(words(x, top + 16 + LINE * (n + 1), TEXT, SOFT, line) for n, line in enumerate(box.purpose)),
    ]


def frame(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'


def words(x: float, y: float, size: float, colour: str, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" {style}>{escape(text)}</text>'


if __name__ == "__main__":
    import vl_convert
    from gallery import packed

    PICTURE.write_text(svg := picture(), "utf-8")
    pixels = PICTURE.with_suffix(".png")
    pixels.write_bytes(vl_convert.svg_to_png(svg, scale=2))
    pixels.write_bytes(packed(pixels))
