"""How a comparison divides a machine among its runs."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from commands import small_experiment
from fedmux.comparison import scheduling
from fedmux.comparison.design import Design
from fedmux.experiment.overrides import read_experiment


def shared_out(
    folder: Path, cores: int, runs: int, monkeypatch: Any, parallel: int = 0, **design: Any
) -> Any:
    monkeypatch.setattr(scheduling, "cores", lambda: cores)
    file = folder / "small.toml"
    file.write_text(small_experiment(rounds=2, checkpoint_every=1))
    table = read_experiment(file, design.pop("overrides", []))
    made = Design.make(table, str(file), seeds=range(runs), **design)
    number, options = scheduling.Schedule(made.create(Path(tempfile.mkdtemp(dir=folder))))._share_out(
        parallel, runs
    )
    return number, list(itertools.islice(options, 3))


FOUR, TWO = ["--workers", "4"], ["--workers", "2"]


@pytest.mark.parametrize(
    ("cores", "runs", "parallel", "number", "workers"),
    [(2, 8, 0, 2, []), (8, 2, 0, 2, FOUR), (8, 3, 0, 3, TWO), (8, 6, 2, 2, FOUR)],
)
def test_runs_take_the_cores_and_share_out_what_is_left(
    tmp_path, monkeypatch, cores, runs, parallel, number, workers
) -> None:
    found = shared_out(tmp_path, cores, runs, monkeypatch, parallel)
    assert found == (number, [workers] * 3)


def test_an_experiment_s_own_workers_and_varied_ones_are_kept(tmp_path, monkeypatch) -> None:
    own = shared_out(tmp_path, 8, 6, monkeypatch, overrides=["execution.workers=4"])
    assert own == (2, [[]] * 3)
    varied = shared_out(tmp_path, 8, 2, monkeypatch, vary=["execution.workers=1,2"])
    assert varied == (1, [[]] * 3)


def test_each_gpu_takes_several_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    number, options = shared_out(tmp_path, 8, 20, monkeypatch)
    assert number == 2 * scheduling.RUNS_A_GPU
    assert options == [["--device", "cuda:0"], ["--device", "cuda:1"], ["--device", "cuda:0"]]
