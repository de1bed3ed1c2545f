"""Importing users' objects: found in the current directory, without traces, and with readable refusals."""

import math
import sys
from pathlib import Path

import pytest

from fedmux.errors import FedmuxError
from fedmux.importing import import_object, place_in_own_code
from refusals import Words, refused


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.startswith("own_")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def refused_import(reference: str, remedy: Words, where: Words = ()) -> None:
    with refused((f'model "{reference}"', *where), remedy):
        import_object(reference, "model")


def test_an_installed_object_is_found() -> None:
    assert import_object("math:sqrt", "loss") is math.sqrt


def test_an_object_in_the_current_directory_is_found_and_the_path_is_left_as_it_was(here: Path) -> None:
    (here / "own_plain.py").write_text("thing = 3\n")
    (here / "own_package").mkdir()
    (here / "own_package" / "inner.py").write_text("thing = 4\n")
    before = list(sys.path)
    assert import_object("own_plain:thing", "model") == 3
    assert import_object("own_package.inner:thing", "model") == 4
    assert sys.path == before


def test_the_path_is_left_as_it_was_when_the_import_fails(here: Path) -> None:
    before = list(sys.path)
    refused_import("own_missing:thing", "install it")
    assert sys.path == before


def test_the_file_of_the_user_wins_over_an_installed_module(here: Path) -> None:
    (here / "own_shadow.py").write_text("where = 'here'\n")
    elsewhere = here / "installed"
    elsewhere.mkdir()
    (elsewhere / "own_shadow.py").write_text("where = 'elsewhere'\n")
    sys.path.insert(0, str(elsewhere))
    try:
        assert import_object("own_shadow:where", "model") == "here"
    finally:
        sys.path.remove(str(elsewhere))


@pytest.mark.parametrize(
    "reference", ["", "math", "math:", ":sqrt", "math.sqrt", "a b:c", "math:sqrt:x", "a..b:c"]
)
def test_a_reference_of_another_form_is_refused(reference: str) -> None:
    refused_import(reference, "package.module:name")


@pytest.mark.parametrize(
    ("reference", "right"),
    [
        ("mine.py:Net", '"mine:Net"'),
        ("./models/mine.py:Net", '"models.mine:Net"'),
        ("/elsewhere/mine.py:Net", '"mine:Net"'),
    ],
)
def test_a_file_in_place_of_a_module_is_told_what_to_write(reference: str, right: str) -> None:
    refused_import(reference, right, where=("file",))


def test_a_missing_module_is_named(here: Path) -> None:
    refused_import("own_missing.inner:Net", ("own_missing;", "install it", "run where own_missing.inner is"))


def test_a_module_that_needs_a_missing_one_is_told_apart(here: Path) -> None:
    (here / "own_needy.py").write_text("import own_absent\n")
    refused_import("own_needy:Net", ("own_absent", "installed"), where=("own_needy",))


def test_a_module_that_fails_gives_its_reason_in_one_line(here: Path) -> None:
    (here / "own_broken.py").write_text("raise ValueError('first\\nsecond')\n")
    refused_import("own_broken:Net", ("ValueError: first;", "fix the module"), where=("own_broken",))
    (here / "own_syntax.py").write_text("def f(:\n")
    refused_import("own_syntax:Net", "SyntaxError", where=("own_syntax.py", "line 1"))


def test_a_missing_name_brings_the_closest_one(here: Path) -> None:
    (here / "own_names.py").write_text("class Network: pass\n")
    refused_import("own_names:Netwrk", '"Network"', where=("own_names", "Netwrk"))
    refused_import("own_names:zzz", "has no", where=("own_names", "zzz"))


def test_the_place_is_the_user_s_last_line_wherever_it_was_caught(here: Path) -> None:
    (here / "own_fails.py").write_text("import json\n\n\ndef inner(): json.loads('')\ndef outer(): inner()\n")
    outer = import_object("own_fails:outer", "data")
    assert callable(outer)
    try:
        try:
            outer()
        except ValueError as error:
            raise FedmuxError("it fails") from error
    except FedmuxError as told:
        assert place_in_own_code(told.__cause__) == "own_fails.py, line 4, in inner"


def test_a_failure_without_a_user_s_line_is_nobody_s() -> None:
    assert place_in_own_code(None) is None
    assert place_in_own_code(FedmuxError("not raised")) is None
