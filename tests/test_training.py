"""A run end to end: what is trained, measured, recorded and when it stops."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedmux
from conftest import files, table
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.fleet.local import reference_update
from fedmux.runs.writing import Checkpoint, RunFolder
from fedmux.training.assembly import assemble
from fedmux.training.measuring import across_tasks, over_clients


def make(**changes) -> Experiment:
    return validated(Experiment, table(**changes), "test")


def test_a_round_of_full_participation_is_the_weighted_sum_of_all_updates(tmp_path):
    experiment = make(method="full", rounds=1)
    run = fedmux.run(experiment, tmp_path / "run")
    setting = assemble(experiment)
    for s, task in enumerate(setting.tasks):
        model = task.layout.read()
        total = torch.zeros_like(model.parameters)
        for client in np.flatnonzero(setting.population.available[:, s]):
            update, _ = reference_update(task, s, experiment.seed, model, int(client), 0)
            total += float(setting.population.shares[client, s]) * update
        task.module.load_state_dict(run.model(task.name))
        torch.testing.assert_close(
            task.layout.read().parameters, model.parameters - total, rtol=1e-4, atol=1e-6
        )


def test_the_log_adds_up(tmp_path):
    experiment = make(rounds=5)
    run = fedmux.run(experiment, tmp_path / "run")
    setting = assemble(experiment)
    jobs = run.allocation
    assert [entry["round"] for entry in run.metrics] == [0, 1, 2, 3, 4, 5]
    for entry in run.metrics[1:]:
        for s, task in enumerate(setting.tasks):
            mine = jobs[(jobs["round"] == entry["round"]) & (jobs["task"] == s)]
            values = entry["tasks"][task.name]
            sizes = setting.population.sizes[mine["client"], s]
            assert values["jobs"] == mine["count"].sum() and values["uploads"] == len(mine)
            assert values["upload_bytes"] == len(mine) * 4 * task.layout.size
            assert values["gradient_steps"] == np.ceil(sizes / 32).sum()
            assert values["step_size"] == pytest.approx(mine["weight"].sum(), rel=1e-5)
            share = setting.population.shares[mine["client"], s]
            expected = setting.population.capacity[mine["client"]] * mine["probability"]
            assert mine["weight"] == pytest.approx(mine["count"] * share / expected, rel=1e-5)
    totals = run.summary["totals"]
    assert totals["uploads"] == len(jobs) and totals["jobs"] == jobs["count"].sum()
    assert run.summary["rounds"] == 5


def test_evaluation_keeps_to_its_interval_and_always_ends_with_one(tmp_path):
    run = fedmux.run(make(rounds=5, evaluation={"every": 2, "clients": False}), tmp_path / "run")
    assert [entry["round"] for entry in run.metrics if "accuracy" in entry] == [0, 2, 4, 5]
    assert all("clients" not in v for e in run.metrics for v in e["tasks"].values())


def test_validation_and_reported_points_are_apart_and_all_held_out_points_are_used():
    setting = assemble(make())
    for task in setting.tasks:
        parts = [
            {tuple(point) for point in part.flatten(1).tolist()}
            for part in (task.validation[0], task.test[0])
        ]
        assert not parts[0] & parts[1]
        assert len(task.validation[0]) == round(0.3 * 359)
        assert len(task.validation[0]) + len(task.test[0]) == 359
    fewer = assemble(make(evaluation={"samples": 50}))
    assert len(fewer.tasks[0].validation[0]) + len(fewer.tasks[0].test[0]) == 50


def test_training_stops_once_every_task_reaches_the_target(tmp_path):
    run = fedmux.run(make(method="full", rounds=200, stop={"accuracy": 0.5}), tmp_path / "run")
    assert run.summary["stopped_at_target"] and run.summary["rounds"] < 200
    assert not fedmux.run(make(stop={"accuracy": 1.0}), tmp_path / "other").summary["stopped_at_target"]


def test_a_task_that_has_left_or_diverged_is_not_waited_for(tmp_path):
    """Task b leaves untrained, or cannot be trained: once a has reached the target there is no more to do."""
    event = [{"round": 2, "leave_tasks": ["b"]}]
    left = fedmux.run(make(method="full", rounds=200, stop={"accuracy": 0.5}, event=event), tmp_path / "left")
    assert left.summary["stopped_at_target"] and left.summary["rounds"] < 200
    broken = table(method="full", rounds=200, stop={"accuracy": 0.5})
    broken["task"][1] |= {"learning_rate": 1e9}
    run = fedmux.run(validated(Experiment, broken, "test"), tmp_path / "run", notice=lambda line: None)
    assert run.summary["stopped_at_target"] and run.summary["rounds"] < 200


def test_the_validation_part_can_be_reported_for_choosing_settings_on_it(tmp_path):
    plain = fedmux.run(make(rounds=2), tmp_path / "plain")
    chosen = fedmux.run(make(rounds=2, evaluation={"report": "validation"}), tmp_path / "chosen")
    name = "models/a.safetensors"
    assert (plain.path / name).read_bytes() == (chosen.path / name).read_bytes()
    task = assemble(make(rounds=2)).tasks[0]
    task.module.load_state_dict(chosen.model("a"))
    with torch.no_grad():
        right = (task.module.eval()(task.validation[0]).argmax(1) == task.validation[1]).double().mean()
    assert chosen.metrics[-1]["tasks"]["a"]["accuracy"] == pytest.approx(float(right))


def test_the_final_accuracy_of_a_short_run_says_over_how_many_rounds_it_is(tmp_path):
    assert fedmux.run(make(rounds=2), tmp_path / "run").summary["final_rounds"] == 2


def test_initial_weights_are_where_training_starts(tmp_path):
    first = fedmux.run(make(method="full"), tmp_path / "first")
    changes = table(method="full", rounds=1)
    changes["task"][0]["initial_weights"] = str(first.path / "models" / "a.safetensors")
    second = fedmux.run(validated(Experiment, changes, "test"), tmp_path / "second")
    assert second.metrics[0]["tasks"]["a"]["accuracy"] == first.metrics[-1]["tasks"]["a"]["accuracy"]
    assert second.metrics[0]["tasks"]["b"]["accuracy"] == first.metrics[0]["tasks"]["b"]["accuracy"]


def test_weights_of_another_shape_are_refused(tmp_path):
    save_file({"layers.0.weight": torch.zeros(3)}, tmp_path / "odd.safetensors")
    changes = table()
    changes["task"][0]["initial_weights"] = str(tmp_path / "odd.safetensors")
    with pytest.raises(fedmux.FedmuxError, match=r'task "a": initial_weights: .*does not fit the model'):
        fedmux.run(validated(Experiment, changes, "test"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluating_less_often_changes_nothing_about_training(tmp_path):
    often = fedmux.run(make(), tmp_path / "often")
    seldom = fedmux.run(make(evaluation={"every": 3}, output={"checkpoint_every": 100}), tmp_path / "seldom")
    kept = ("allocation.bin", "models/a.safetensors", "models/b.safetensors")
    assert [files(often.path)[name] for name in kept] == [files(seldom.path)[name] for name in kept]


@pytest.mark.parametrize(("every", "expected"), [(2, [2, 4]), ("0.00001 s", [1, 2, 3, 4, 5]), ("1 h", [])])
def test_checkpoints_by_rounds_or_by_the_clock(tmp_path, monkeypatch, every, expected):
    """None at the end, when the models are there; then the others go."""
    saved: list[int] = []
    save = RunFolder.save

    def saving(self: RunFolder, checkpoint: Checkpoint) -> None:
        saved.append(checkpoint.rounds)
        save(self, checkpoint)

    monkeypatch.setattr(RunFolder, "save", saving)
    run = fedmux.run(make(rounds=6, output={"checkpoint_every": every}), tmp_path / "run")
    assert saved == expected
    assert not (run.path / "checkpoints").exists()


@pytest.mark.parametrize("every", [0, True, 1.5, "5", "0 min", "5 minutes", "-1 s", ""])
def test_what_is_no_interval_between_checkpoints_is_refused(every):
    expected = r'\[output\] checkpoint_every: .*rounds, at least 1, or a time: "90 s"'
    with pytest.raises(fedmux.FedmuxError, match=expected):
        make(output={"checkpoint_every": every})


def test_the_global_generators_and_threads_of_the_caller_are_left_alone(tmp_path):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.set_num_threads(2)
    before = torch.random.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    fedmux.run(make(rounds=1), tmp_path / "run")
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_the_run_folder_says_what_it_was_made_with(tmp_path):
    run = fedmux.run(make(rounds=1), tmp_path / "run")
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["packages"]["torch"] == torch.__version__ and environment["cores"] >= 1
    with np.load(run.path / "population.npz") as people:
        assert people["sizes"].shape == (12, 2) and people["capacity"].shape == (12,)
    assert fedmux.Experiment.read(run.path / "experiment.toml").table() == make(rounds=1).table()


def test_figures_over_tasks_and_clients():
    over = across_tasks(np.array([0.5, 0.7]))
    assert (over["mean"], over["minimum"]) == (pytest.approx(0.6), 0.5)
    assert over["variance"] == pytest.approx(0.01)
    assert over["cosine"] == pytest.approx(1.2 / (np.sqrt(2) * np.hypot(0.5, 0.7)))
    spread = over_clients(np.array([0.0, np.nan, 1.0, 0.5]))
    assert (spread["minimum"], spread["median"], spread["maximum"]) == (0, 0.5, 1)
    assert over_clients(np.array([np.nan])) == {}
