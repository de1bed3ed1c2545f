"""A comparison's folder: written by its design, read without validating anything."""

import tomllib
from pathlib import Path

import pytest
import tomli_w

from conftest import table
from fedmux.comparison.design import Design
from fedmux.comparison.folder import Comparison
from fedmux.errors import FedmuxError
from fedmux.runs.compared import cells
from fedmux.runs.history import find

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


def test_what_a_damaged_folder_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "comparison.toml").write_text("methods = []\n")
    with pytest.raises(FedmuxError, match=r"comparison\.toml is damaged, it lacks 'vary'"):
        Comparison.open(tmp_path)


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


@pytest.mark.parametrize(
    "plan",
    [
        "methods = [5]\nvary = []\nseeds = [0]",
        "methods = ['a']\nvary = [5]\nseeds = [0]",
        "methods = ['a']\nvary = []\nseeds = 3",
        "cells = 3",
        "cells = [1]",
    ],
)
def test_a_damaged_plan_stops_no_reader_of_many_runs(tmp_path: Path, plan: str) -> None:
    (tmp_path / "runs" / "a-seed-0").mkdir(parents=True)
    (tmp_path / "runs" / "a-seed-0" / "environment.json").write_text("{}")
    (tmp_path / "comparison.toml").write_text(plan)
    assert [history.path.name for history in find([tmp_path])] == ["a-seed-0"]
    with pytest.raises(FedmuxError, match=r"comparison\.toml is damaged"):
        cells(tmp_path)
