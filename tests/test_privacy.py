"""Clipping and noise on updates: what leaves a client, what it costs, what it gives away."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import norm

import fedmux
from conftest import differences, files, table
from fedmux.privacy import Privacy
from fedmux.training.assembly import assemble
from refusals import refused


def test_clipped_updates_keep_their_direction_and_short_ones_their_length() -> None:
    updates = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    clipped = Privacy(clip=1.0).clipped(updates)
    torch.testing.assert_close(clipped, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_noise_has_mean_zero_and_the_deviation_that_was_asked_for() -> None:
    updates = torch.zeros(4, 20_000)
    sent = Privacy(clip=2.0, noise=0.5).sent(updates, [np.random.default_rng(seed) for seed in range(4)])
    assert not updates.any()
    assert sent.mean(1).abs().max() < 5 / np.sqrt(20_000)
    torch.testing.assert_close(sent.std(1), torch.ones(4), rtol=0.03, atol=0)
    assert torch.corrcoef(sent).fill_diagonal_(0).abs().max() < 5 / np.sqrt(20_000)


@pytest.mark.parametrize("noise", [0.5, 2.0, 10.0, 50.0])
@pytest.mark.parametrize("releases", [1, 7, 100])
def test_epsilon_is_an_upper_bound_by_the_exact_curve_of_gaussian_noise(noise: float, releases: int) -> None:
    """k releases are one of sqrt(k) times the sensitivity; the curve is of Balle and Wang 2018."""
    privacy = Privacy(clip=1.0, noise=noise)
    epsilon, distance = privacy.epsilon(releases), 2 * np.sqrt(releases) / noise
    exact = norm.cdf(distance / 2 - epsilon / distance) - np.exp(
        epsilon + norm.logcdf(-distance / 2 - epsilon / distance)
    )
    assert exact <= privacy.delta
    loose = 0.6 * epsilon
    assert norm.cdf(distance / 2 - loose / distance) > privacy.delta  # and not a needlessly large one
    assert Privacy(clip=1.0).epsilon(releases) is None


@pytest.mark.parametrize("method", ["random", "mmfl-gvr", "mmfl-gvr*", "scaffold"])
def test_each_task_is_clipped_by_its_own_rule(tmp_path: Path, method: str) -> None:
    experiment = fedmux.Experiment(**private(method, {"clip": 0.02}))
    run = fedmux.run(experiment, tmp_path / "run", notice=lambda line: None)
    jobs = run.allocation[run.allocation["task"] == 0]
    moved = distances(experiment, run)
    assert 0 < moved["a"] <= 1.01 * 0.02 * 2 * max(1.0, np.abs(jobs["weight"]).sum())
    assert moved["b"] > 2 * moved["a"]
    said = run.summary["privacy"]
    assert set(said) == {"a"} and said["a"]["epsilon"] is None
    assert said["a"]["releases"] == np.bincount(jobs["client"]).max()


def test_a_clip_that_nothing_reaches_changes_nothing(tmp_path: Path) -> None:
    plain = fedmux.run(fedmux.Experiment(**table(method="mmfl-gvr*")), tmp_path / "plain")
    wide = fedmux.run(fedmux.Experiment(**private("mmfl-gvr*", {"clip": 1e4}, rounds=4)), tmp_path / "wide")
    same = files(plain.path)
    assert {k: v for k, v in files(wide.path).items() if k != "summary.json"} == {
        k: v for k, v in same.items() if k != "summary.json"
    }


@pytest.mark.parametrize("execution", [{"local": "stacked"}, {"workers": 2}], ids=["stacked", "workers"])
def test_noise_follows_from_the_seed_whatever_computes_it(tmp_path: Path, execution: dict) -> None:
    noisy = private("mmfl-gvr", {"clip": 0.5, "noise": 0.1})
    one = fedmux.run(fedmux.Experiment(**noisy), tmp_path / "one")
    other = fedmux.run(fedmux.Experiment(**noisy, execution=execution), tmp_path / "other")
    assert differences(other.path, one.path) == []
    assert one.summary["privacy"]["a"]["epsilon"] > 0


def test_models_with_batch_statistics_are_refused(tmp_path: Path) -> None:
    layers = private("random", {"clip": 1.0})
    layers["task"][0] |= {"model": "torch.nn:BatchNorm1d", "model_options": {"num_features": 10}}
    with refused('task "a"', "buffers"):
        fedmux.run(fedmux.Experiment(**layers), tmp_path / "run")


def private(method: str, privacy: dict, rounds: int = 2) -> dict:
    described = table(method=method, rounds=rounds)
    described["task"] = [{**described["task"][0], "privacy": privacy}, described["task"][1]]
    return described


def distances(experiment: fedmux.Experiment, run: fedmux.Run) -> dict[str, float]:
    """How far each model is from where it began."""
    moved = {}
    for task in assemble(experiment).tasks:
        start = task.weights(task.layout.read())
        end = load_file(run.path / "models" / f"{task.name}.safetensors")
        moved[task.name] = float(
            torch.linalg.vector_norm(torch.cat([(end[key] - start[key]).flatten() for key in end]))
        )
    return moved
