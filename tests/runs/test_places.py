"""Which folder a run is written to."""

import re
from pathlib import Path

from fedmux.runs.places import folder_for


def test_the_caller_decides_then_the_experiment_then_the_clock(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_for("small", "mine", "configured") == Path("mine")
    assert folder_for("small", None, "configured") == Path("configured")
    named = folder_for("small")
    assert re.fullmatch(r"runs/small-\d{8}-\d{6}", str(named))


def test_a_default_folder_that_exists_is_numbered(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(20):  # over the turn of a second too
        folder_for("small").mkdir(parents=True)
    assert len(list((tmp_path / "runs").iterdir())) == 20
