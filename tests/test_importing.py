"""Importing users' objects: found in the current directory, without traces, and with readable refusals."""

import math
import sys
from pathlib import Path

import pytest

from fedmux.errors import FedmuxError
from fedmux.importing import import_object


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.startswith("own_")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def refusal(reference: str) -> str:
    with pytest.raises(FedmuxError) as error:
        import_object(reference, "model")
    assert "\n" not in str(error.value)
    return str(error.value)


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
    refusal("own_missing:thing")
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
    assert refusal(reference) == (
        f'model "{reference}": not of the form package.module:name, such as my_code:thing'
    )


def test_a_missing_module_is_named(here: Path) -> None:
    assert refusal("own_missing.inner:Net") == (
        'model "own_missing.inner:Net": no module own_missing; install it, or run where own_missing.inner is'
    )


def test_a_module_that_needs_a_missing_one_is_told_apart(here: Path) -> None:
    (here / "own_needy.py").write_text("import own_absent\n")
    assert refusal("own_needy:Net") == (
        'model "own_needy:Net": own_needy itself needs own_absent, which is not installed'
    )


def test_a_module_that_fails_gives_its_reason_in_one_line(here: Path) -> None:
    (here / "own_broken.py").write_text("raise ValueError('first\\nsecond')\n")
    assert refusal("own_broken:Net") == (
        'model "own_broken:Net": importing own_broken failed: ValueError: first; fix the module'
    )
    (here / "own_syntax.py").write_text("def f(:\n")
    assert "SyntaxError" in refusal("own_syntax:Net")


def test_a_missing_name_brings_the_closest_one(here: Path) -> None:
    (here / "own_names.py").write_text("class Network: pass\n")
    assert refusal("own_names:Netwrk") == (
        'model "own_names:Netwrk": module own_names has no Netwrk (did you mean "Network"?)'
    )
    assert refusal("own_names:zzz") == 'model "own_names:zzz": module own_names has no zzz'
