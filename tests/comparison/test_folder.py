"""A comparison's folder: written by its design, read without validating anything."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from conftest import table
from fedmux.comparison.design import Design
from fedmux.comparison.folder import Comparison
from fedmux.comparison.scheduling import Schedule
from fedmux.errors import FedmuxError
from fedmux.runs.compared import cells
from fedmux.runs.history import find
from refusals import refused

METHODS = ["round-robin", {"name": "random", "label": "by chance!"}]


@pytest.fixture
def design() -> Design:
    compared = {**table(), "compare": {"methods": METHODS}}
    return Design.make(compared, "test", seeds=[3, 0], vary=["population.jobs=4,6", "rounds=1,2"])


def test_a_folder_lists_its_cells_and_older_ones_without_the_list_read_the_same(
    tmp_path: Path, design: Design
) -> None:
    created = design.create(tmp_path / "c")
    plan = tomllib.loads((tmp_path / "c/comparison.toml").read_text())
    assert [cell["name"] for cell in plan["cells"]] == list(design.experiments())
    assert plan["cells"][-1] == {
        "name": "by_chance__population.jobs=6_rounds=2-seed-0",
        "label": "by chance! population.jobs=6 rounds=2",
        "method": "by chance!",
        "seed": 0,
    }
    opened = Comparison.open(tmp_path / "c")
    assert opened.cells == opened.asked == created.cells == design.cells == cells(tmp_path / "c")
    del plan["cells"]
    (tmp_path / "c/comparison.toml").write_text(tomli_w.dumps(plan))
    older = Comparison.open(tmp_path / "c")
    assert (older.cells, older.references, older.name) == (opened.cells, opened.references, "small")


def test_cells_that_exist_elsewhere_are_listed_and_not_run_here(tmp_path: Path, design: Design) -> None:
    label = "round-robin population.jobs=4 rounds=1"
    created = design.create(tmp_path / "c", [(label, 3)])
    opened = Comparison.open(tmp_path / "c")
    assert (
        created.asked == opened.asked == [cell for cell in design.cells if cell.name != f"{label}-seed-3"][1:]
    )
    assert opened.cells == design.cells


def test_looking_writes_nothing(tmp_path: Path, design: Design) -> None:
    assert design.at(tmp_path / "c").cells == design.cells
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_added_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    """Two labels that make the same name for files."""

    def named(label: str) -> Design:
        return Design.make(
            {**table(), "compare": {"methods": [{"name": "random", "label": label}]}}, "test", seeds=[0]
        )

    named("a b").create(tmp_path / "c")
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    with pytest.raises(FedmuxError, match="compared twice"):
        named("a_b").create(tmp_path / "c")
    assert before == {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}


def test_a_number_as_a_label_is_read_in_an_older_folder_and_refused_in_a_file(tmp_path: Path) -> None:
    labelled, named = (
        {**table(), "compare": {"methods": ["round-robin", {"name": "random", "label": label}]}}
        for label in (3, "3")
    )
    older = Design.make(named, "test", seeds=[0]).plan()
    older["methods"], older["experiment"] = labelled["compare"]["methods"], labelled
    del older["cells"]
    (tmp_path / "comparison.toml").write_text(tomli_w.dumps(older))
    assert [cell.name for cell in Comparison.open(tmp_path).cells] == ["round-robin-seed-0", "3-seed-0"]
    assert list(Design.read(tmp_path).experiments()) == ["round-robin-seed-0", "3-seed-0"]
    assert len(Design.make(named, "test", seeds=[1]).at(tmp_path).cells) == 4  # the same methods
    with refused(("test", "[compare] methods", "3"), "text"):
        Design.make(labelled, "test", seeds=[0])


def older(**changes: Any) -> dict[str, Any]:
    """Changes to a plan that does not list its cells."""
    return {**changes, "cells": None}


def other_cell(**changes: Any) -> dict[str, Any]:
    """Changes to the first of the cells that a plan lists."""
    return {"cells": [{"method": "round-robin", "label": "round-robin", "seed": 3, **changes}]}


# What is damaged in a comparison.toml: new values of its keys (None: there is none), the place, the remedy.
DAMAGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no methods": ({"methods": None}, '"methods"', "lacks"),
    "empty methods": (older(methods=[]), '"methods"', "at least one method"),
    "a number for methods": ({"methods": 3}, '"methods"', "a list"),
    "a number for a method": (older(methods=[5]), '"methods"', "a name or a table"),
    "a method without a name": (older(methods=[{"label": "a"}]), '"methods"', "a table with a name"),
    "a list for a label": (older(methods=[{"name": "random", "label": [1]}]), '"methods"', "a name"),
    "no seeds": ({"seeds": None}, '"seeds"', "lacks"),
    "empty seeds": (older(seeds=[]), '"seeds"', "at least one"),
    "a number for seeds": (older(seeds=3), '"seeds"', "a list"),
    "a word for a seed": (older(seeds=["x"]), '"seeds"', "whole number"),
    "a truth value for a seed": (older(seeds=[True]), '"seeds"', "whole number"),
    "no keys": ({"vary": None}, '"vary"', "lacks"),
    "a number for a key": (older(vary=[3]), '"vary"', "rate=0.1,0.2"),
    "a key without values": (older(vary=["rounds"]), '"rounds"', "key=a,b,c"),
    "text for the experiment": ({"experiment": "x"}, '"experiment"', "a table"),
    "a list for the baseline": ({"baseline": ["random"]}, '"baseline"', "the name of a method"),
    "another baseline": ({"baseline": "full"}, '"baseline"', "round-robin"),
    "a number for the source": ({"source": 3}, '"source"', "text"),
    "empty cells": ({"cells": []}, '"cells"', "at least one"),
    "text for cells": ({"cells": "abc"}, '"cells"', "a list"),
    "text for a cell": ({"cells": ["abc"]}, '"cells"', "a list"),
    "a cell without a label": (other_cell(label={}), '"cells"', "a label"),
    "a list for a cell's label": (other_cell(label=[1]), '"cells"', "a label"),
    "a list for a cell's method": (other_cell(method=[1]), '"cells"', "a method"),
    "a word for a cell's seed": (other_cell(seed="x"), '"cells"', "a seed"),
    "another cell": (other_cell(label="zzz"), '"cells"', "combinations"),
    "one cell of many": (other_cell(), '"cells"', "combinations"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_plan_is_told_with_the_key_and_stops_no_reader_of_many_runs(
    tmp_path: Path, design: Design, damage: str
) -> None:
    changes, place, remedy = DAMAGED[damage]
    plan = {key: value for key, value in {**design.plan(), **changes}.items() if value is not None}
    (tmp_path / "comparison.toml").write_text(tomli_w.dumps(plan))
    (tmp_path / "runs" / "a-seed-0").mkdir(parents=True)
    (tmp_path / "runs" / "a-seed-0" / "environment.json").write_text("{}")
    for read in (cells, Comparison.open, Design.read):
        with refused((str(tmp_path), "comparison.toml is damaged", place), (remedy, "restore it")):
            read(tmp_path)
    assert [history.path.name for history in find([tmp_path])] == ["a-seed-0"]


@pytest.mark.parametrize("key", ["experiment", "source"])
def test_what_a_plan_lacks_for_going_on_does_not_hide_its_runs(
    tmp_path: Path, design: Design, key: str
) -> None:
    plan = {name: value for name, value in design.plan().items() if name != key}
    (tmp_path / "comparison.toml").write_text(tomli_w.dumps(plan))
    assert Comparison.open(tmp_path).cells == design.cells
    with refused("comparison.toml", (f'lacks "{key}"', "restore it")):
        Design.read(tmp_path)


def test_a_comparison_without_its_experiments_is_shown_and_not_continued(
    tmp_path: Path, design: Design
) -> None:
    design.create(tmp_path / "c")
    shutil.rmtree(tmp_path / "c" / "experiments")
    opened = Comparison.open(tmp_path / "c")
    assert opened.results() == []
    with refused(("c: ", "experiments/"), "restore them"):
        Schedule(opened)
