"""What `fedmux explain` says of an experiment's first round."""

import json
import sys

import numpy as np
import pytest
import tomli_w

from conftest import METHODS, ONE_TASK, table
from fedmux.cli import main
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.explain import explain


def make(method, **changes) -> dict:
    small = table(method=method, **changes)
    if (method if isinstance(method, str) else method["name"]) in ONE_TASK:
        small["task"] = small["task"][:1]
    return small


def explained(method, **changes):
    return explain(validated(Experiment, make(method, **changes), "test"))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_explained(method):
    found = explained(method)
    assert (found.probability >= 0).all() and (found.probability <= 1).all()
    assert (found.least_variance.sum() <= found.random_variance.sum() * (1 + 1e-9)).all()
    told = found.table()
    assert told["jobs"] == pytest.approx(found.expected.sum())
    assert json.loads(json.dumps(told)) == told
    assert set(told["tasks"]) == set(found.tasks)


def test_the_optimum_is_reached_by_gvr_without_floor_and_mixing():
    pure = {"name": "mmfl-gvr", "floor": 0.0, "mixing": 0.0}
    found = explained(pure)
    assert found.variance == pytest.approx(found.least_variance)
    assert found.variance.sum() < explained("mmfl-gvr").variance.sum() < found.random_variance.sum()


def test_full_participation_has_no_variance_and_random_has_its_own():
    assert (explained("full").variance == 0).all()
    found = explained("random")
    assert found.variance == pytest.approx(found.random_variance)
    assert found.probability == pytest.approx(found.random)


def test_saturated_clients_are_those_at_the_bound():
    found = explained("mmfl-gvr", population={"clients": 12, "jobs": 11})
    assert 0 < found.saturated.sum() < 12
    total = found.probability.sum(1)
    assert total[found.saturated] == pytest.approx(found.ceiling)
    assert (total[~found.saturated] < found.ceiling - 1e-9).all()


def test_the_command_prints_tables_or_json_and_draws(tmp_path, monkeypatch, capsys):
    path = tmp_path / "e.toml"
    path.write_text(tomli_w.dumps(make("mmfl-lvr")))
    monkeypatch.chdir(tmp_path)
    for extra in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["fedmux", "explain", str(path), "-o", "why.png", *extra])
        main()
        out = capsys.readouterr().out
        picture = (tmp_path / "why.png").read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
        (tmp_path / "why.png").unlink()
        if extra:
            told = json.loads(out)
            assert np.array(told["scores"]).shape == (12, 2)
        else:
            assert "Random's" in out and "optimum" in out and "saturated" in out


def test_a_picture_that_is_replaced_is_said_so(tmp_path, monkeypatch, capsys):
    (tmp_path / "small.toml").write_text(tomli_w.dumps(make("random")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedmux", "explain", "small.toml"])
    told = []
    for _ in range(2):
        main()
        told.append(capsys.readouterr().out.splitlines()[-1])
    first, second = told
    assert first.endswith("small-explained.png")
    assert second == f"{first} (in place of the one that was there)"
