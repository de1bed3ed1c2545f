"""What `fedmux explain` says of a round of an experiment."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import fedmux
from conftest import METHODS, ONE_TASK, experiment_of, table
from fedmux.aggregation.stale import PlannedStale
from fedmux.aggregation.store import ClientStore
from fedmux.cli import main
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.explain import explain
from fedmux.training.training import Training


def make(method, **changes) -> dict:
    small = table(method=method, **changes)
    if (method if isinstance(method, str) else method["name"]) in ONE_TASK:
        small["task"] = small["task"][:1]
    return small


def explained(method, rounds=0, **changes):
    return explain(validated(Experiment, make(method, **changes), "test"), rounds)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_explained(method):
    found = explained(method, rounds=2)
    assert (found.probability >= 0).all() and (found.probability <= 1).all()
    assert (found.least_variance.sum() <= found.random_variance.sum() * (1 + 1e-9)).all()
    told = found.table()
    assert told["round"] == 3
    assert told["jobs"] == pytest.approx(found.expected.sum())
    assert json.loads(json.dumps(told)) == told
    assert set(told["tasks"]) == set(found.tasks)


def test_the_optimum_is_reached_by_gvr_without_floor_and_mixing():
    pure = {"name": "mmfl-gvr", "floor": 0.0, "mixing": 0.0}
    found = explained(pure)
    assert found.variance == pytest.approx(found.least_variance)
    assert found.variance.sum() < explained("mmfl-gvr").variance.sum() < found.random_variance.sum()


@pytest.mark.parametrize("method", ["mmfl-stale", "mmfl-optimal-stale"])
def test_with_stale_updates_the_variance_is_that_of_what_they_leave(method):
    """These methods score by just that, so they reach its optimum; scores and truth are computed apart."""
    pure = {"name": method, "floor": 0.0, "mixing": 0.0}
    found = explained(pure, rounds=3)
    assert found.truth.kept(0).sum() > 3
    assert found.variance == pytest.approx(found.least_variance, rel=1e-4)
    assert found.variance.sum() < 0.9 * found.fresh_variance.sum()
    first = explained(pure)
    assert first.variance == pytest.approx(first.fresh_variance)  # nothing has been kept
    assert explained("mmfl-gvr", rounds=1).fresh_variance is None


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


def test_the_round_after_some_is_the_one_that_a_run_plays(tmp_path):
    experiment = experiment_of(method="mmfl-forecast", rounds=6)
    run = fedmux.run(experiment, tmp_path / "run", notice=lambda line: None)
    found, jobs = explain(experiment, 5), run.allocation
    jobs = jobs[jobs["round"] == 6]
    client, task = jobs["client"], jobs["task"]
    assert len(jobs) > 3
    assert found.probability[client, task] == pytest.approx(jobs["probability"], rel=1e-6)
    # Of those who trained the run knows the truth too, and how far their forecasts were off.
    off = np.log(found.forecasts.norms / found.truth.norms)
    cosines = (found.forecasts.cosines - found.truth.cosines)[client, task]
    for s, name in enumerate(found.tasks):
        mine = (task == s) & found.forecasts.known[client, task]
        error = run.metrics[-1].allocation["forecast_error"]
        assert error["norm"][s] == pytest.approx(np.sqrt(np.mean(off[client, task][mine] ** 2)), rel=1e-3)
        mine = (task == s) & (found.truth.lengths[client, task] > 0)
        assert error["cosine"][s] == pytest.approx(np.sqrt(np.mean(cosines[mine] ** 2)), rel=1e-3), name


class KnowsAll(fedmux.Allocator):
    """Every client reports its update's projection; those who train have shown the length of the last one."""

    needs = frozenset({"projection"})
    learns = frozenset({"memory"})
    lengths: np.ndarray | None = None

    def plan(self, state):
        people = state.population
        if self.lengths is None:
            self.lengths = np.zeros(people.sizes.shape)
        choice = fedmux.spread(
            state, people.available / np.maximum(people.available.sum(1), 1)[:, None], "processors"
        )
        return fedmux.Probabilities(choice.probability, choice.processors, betas=state.signals.betas)

    def learn(self, state, lessons):
        self.lengths[lessons.client, lessons.task] = lessons.after

    def forecasts(self, state):
        along = state.signals.betas * self.lengths
        norms = np.hypot(state.signals.norms, along)
        return fedmux.Forecasts(norms, along / norms)


class Exact(fedmux.Method):
    """A method whose forecasts are the truth."""

    def allocator(self):
        return KnowsAll()

    def aggregator(self):
        return PlannedStale(ClientStore("float32", "memory"))


def test_exact_forecasts_of_a_method_of_ones_own_have_no_error():
    found = explain(experiment_of(method=Exact()), 3)
    for row in found.table()["forecasts"]["tasks"].values():
        assert row["norm"]["pairs"] == row["norm"]["known"] > 6
        assert row["norm"]["factor"] == row["norm"]["factor_known"] == pytest.approx(1, abs=1e-4)
        assert row["norm"]["correlation"] == pytest.approx(1, abs=1e-5)
        assert row["cosine"]["pairs"] > 2
        assert row["cosine"]["error"] == pytest.approx(0, abs=1e-4)
        assert row["cosine"]["forecast"] == pytest.approx(row["cosine"]["true"], abs=1e-4)


def test_a_method_without_forecasts_has_none_and_one_without_memory_none_of_cosines():
    assert explained("mmfl-lvr", rounds=1).table()["forecasts"] is None
    told = explained({"name": "mmfl-forecast", "stale": False}, rounds=1).table()
    assert told["cosines"] is None and told["forecasts"]["cosines"] is None
    assert all(row["cosine"] is None and row["norm"]["known"] for row in told["forecasts"]["tasks"].values())


def test_the_command_shows_forecasts_and_leaves_only_a_picture(tmp_path, monkeypatch, capsys):
    (tmp_path / "e.toml").write_text(tomli_w.dumps(make("mmfl-forecast")))
    monkeypatch.chdir(tmp_path)
    sizes = []
    for extra in (["--rounds", "2"], ["--rounds", "2", "--json"], ["--set", "method=random"]):
        monkeypatch.setattr(sys, "argv", ["fedmux", "explain", "e.toml", "-o", "why.png", *extra])
        main()
        out, err = capsys.readouterr()
        sizes.append((tmp_path / "why.png").stat().st_size)
        if "--json" in extra:
            assert err == "picture:    why.png (in place of the one that was there)\n"
            assert np.array(json.loads(out)["forecasts"]["norms"]).shape == (12, 2)
        elif "--rounds" in extra:
            assert "round 3" in out and "without h" in out and "norms off" in out and "cosines" in out
            assert "round 2/2" in err
        else:
            assert "round 1" in out and "without h" not in out and "norms off" not in out
    assert sizes[2] < 0.8 * sizes[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.toml", "why.png"]


def test_ctrl_c_leaves_nothing(tmp_path, monkeypatch, capsys):
    kept = {"name": "mmfl-forecast", "storage": "disk"}
    (tmp_path / "e.toml").write_text(tomli_w.dumps(make(kept)))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    advance = Training.advance

    def stopped(self, began):
        if self.state.round == 2:
            assert list(scratch.rglob("store-*.bin"))
            raise KeyboardInterrupt
        advance(self, began)

    monkeypatch.setattr(Training, "advance", stopped)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedmux", "explain", "e.toml", "--rounds", "3"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err.splitlines()[-1] == "fedmux: stopped; explaining leaves nothing behind"
    assert [path for path in tmp_path.rglob("*") if path != scratch] == [Path(tmp_path / "e.toml")]


def test_a_run_that_ends_at_its_target_is_explained_there():
    told = []
    experiment = experiment_of(stop={"accuracy": 0.01})
    assert explain(experiment, 3, notice=told.append).round == 2
    assert "round 1" in told[-1]
