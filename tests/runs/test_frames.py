"""Frames hold what the run folder holds, for a run, one that is not finished, and a comparison."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmux
from conftest import table
from fedmux.comparison.design import Design
from fedmux.errors import FedmuxError
from fedmux.experiment.mistakes import validated
from fedmux.runs.rounds import Round


def trained(folder: Path, **changes: Any) -> fedmux.Run:
    return fedmux.run(validated(fedmux.Experiment, table(**changes), "test"), folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedmux.Run:
    return trained(tmp_path_factory.mktemp("frames") / "run", dropout={"rate": 0.3}, evaluation={"every": 2})


def test_metrics_have_a_row_for_each_round_and_task(run: fedmux.Run) -> None:
    frame = fedmux.load(run.path).metrics
    assert list(frame.columns[:4]) == ["round", "task", "accuracy", "loss"]
    for row in frame.to_dict("records"):
        values = run.metrics[row["round"]].tasks[row["task"]].line()
        for key in ("accuracy", "loss", "jobs", "uploads", "gradient_steps", "step_size", "server_bytes"):
            assert row[key] == values[key] if key in values else np.isnan(row[key])
        assert row["clients_mean"] == values["clients"]["mean"] if "clients" in values else True
    assert frame.groupby("task")["jobs"].sum().sum() == run.summary["totals"]["jobs"]
    assert len(frame) == 5 * 2


def test_rounds_have_a_row_each(run: fedmux.Run) -> None:
    frame = fedmux.load(run.path).rounds
    assert list(frame["round"]) == [0, 1, 2, 3, 4]
    assert frame["dropped"].sum() == run.summary["dropped"]
    assert list(frame["mean_accuracy"].dropna().index) == [0, 2, 4]
    for row, entry in zip(frame.to_dict("records"), run.metrics):
        assert row["seconds"] == entry.seconds
        if entry.accuracy:
            assert row["minimum_accuracy"] == entry.accuracy.minimum
            assert row["variance_accuracy"] == entry.accuracy.variance
        if entry.phases:
            assert row["train_seconds"] == entry.phases["train"]


def test_the_allocation_names_the_tasks(run: fedmux.Run) -> None:
    frame = fedmux.load(run.path).allocation
    assert list(frame.columns) == ["round", "client", "task", "count", "probability", "weight"]
    assert (frame["task"].map({"a": 0, "b": 1}) == run.allocation["task"]).all()
    for key in ("round", "client", "count", "probability", "weight"):
        assert (frame[key].to_numpy() == run.allocation[key]).all()
    assert (frame["round"] - frame["round"].max()).min() == -3  # whole numbers with a sign


def test_clients_have_a_row_for_each_task(run: fedmux.Run) -> None:
    frame = fedmux.load(run.path).clients.set_index(["client", "task"])
    arrays = np.load(run.path / "population.npz")
    assert len(frame) == 12 * 2
    for i in range(12):
        for s, name in enumerate("ab"):
            row = frame.loc[(i, name)]
            assert (row["processors"], row["points"]) == (arrays["capacity"][i], arrays["sizes"][i, s])
            assert row["available"] == (arrays["eligible"][i, s] and row["points"] > 0)
    jobs = fedmux.load(run.path).allocation.set_index(["client", "task"])
    assert frame.loc[jobs.index, "available"].all()


def test_summary_and_configuration_come_along(run: fedmux.Run) -> None:
    frames = fedmux.load(str(run.path))
    assert frames.summary == run.summary
    assert frames.table == run.table


def test_a_run_that_is_not_finished_has_frames_too(tmp_path: Path) -> None:
    def stop(entry: Round) -> None:
        if entry.round == stop_at:
            raise RuntimeError

    for stop_at in (0, 3):
        folder = tmp_path / str(stop_at)
        with pytest.raises(RuntimeError):
            fedmux.run(validated(fedmux.Experiment, table(), "test"), folder, observers=[stop])
        frames = fedmux.load(folder)
        assert frames.summary == {}
        assert frames.rounds["round"].max() == frames.metrics["round"].max() == stop_at
        assert frames.allocation["round"].nunique() == stop_at
        assert len(frames.clients) == 24


def test_a_comparison_is_one_frame_over_its_runs(tmp_path: Path) -> None:
    plan = {"methods": [{"name": "random", "label": "chance"}, "round-robin"], "seeds": [0, 1]}
    whole = {**table(rounds=2), "compare": plan}
    design = Design.make(whole, "test")
    comparison = design.create(tmp_path / "both")
    with pytest.raises(FedmuxError, match="none of its runs has started"):
        fedmux.load(tmp_path / "both")
    done = comparison.cells[:-1]
    for cell in done:
        experiment = validated(fedmux.Experiment, design.experiments()[cell.name], "test")
        fedmux.run(experiment, comparison.folder(cell))
    frames = fedmux.load(tmp_path / "both")
    for name in ("metrics", "rounds", "allocation", "clients"):
        frame = getattr(frames, name)
        assert list(frame.columns[:3]) == ["method", "seed", "run"]
        assert set(zip(frame["method"], frame["seed"], frame["run"])) == {
            (cell.label, cell.seed, cell.name) for cell in done
        }
        assert list(frame.index) == list(range(len(frame)))
    alone = fedmux.load(comparison.folder(done[1])).metrics
    part = frames.metrics[frames.metrics["run"] == done[1].name]
    assert (part["accuracy"].to_numpy() == alone["accuracy"].to_numpy()).all()
    assert list(frames.summary) == [cell.name for cell in done]
    assert frames.table[done[0].name]["method"]["name"] == "random"
    assert set(frames.metrics["method"]) == {"chance", "round-robin"}


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedmuxError, match="is not a run folder"):
        fedmux.load(tmp_path)


def test_pandas_loads_only_for_frames(run: fedmux.Run) -> None:
    script = f"""
import sys, fedmux
from fedmux.cli import app
assert not {{"pandas", "mlflow", "tensorboard", "wandb"}} & set(sys.modules)
frames = fedmux.load({str(run.path)!r})
assert frames.summary and "pandas" not in sys.modules
frames.rounds
assert "pandas" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
