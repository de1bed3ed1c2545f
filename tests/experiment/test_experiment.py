"""The experiment: shorthand, overrides, round trips, and Python objects in the place of names."""

import numpy as np
import pytest

import fedmux
from conftest import experiment_of, table
from fedmux.data.partition import Iid, LabelShare
from fedmux.experiment import Experiment, LearningRate
from fedmux.experiment.mistakes import validated
from fedmux.experiment.overrides import put
from fedmux.methods import Method
from refusals import refused


def test_learning_rates_follow_their_schedules():
    assert [LearningRate(initial=0.1)(t) for t in (0, 99)] == [0.1, 0.1]
    inverse = LearningRate(initial=0.1, schedule="inverse", offset=10)
    assert [inverse(t) for t in (0, 10, 30)] == pytest.approx([0.1, 0.05, 0.025])
    step = LearningRate(initial=0.1, schedule="step", every=10, factor=0.5)
    assert [step(t) for t in (0, 9, 10, 25)] == pytest.approx([0.1, 0.1, 0.05, 0.025])


def test_a_table_goes_there_and_back():
    experiment = experiment_of()
    assert validated(Experiment, experiment.table(), "test").table() == experiment.table()


def test_shorthand_stands_for_tables():
    changes = table()
    changes["task"][0] |= {"partition": "iid", "learning_rate": 1}
    experiment = experiment_of(**changes)
    assert experiment.tasks[0].partition == Iid()
    assert experiment.tasks[0].learning_rate == LearningRate(initial=1.0)
    assert isinstance(experiment.tasks[1].partition, LabelShare)
    assert isinstance(experiment.method, Method) and type(experiment.method).name == "random"


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("rounds=7", lambda t: t["rounds"] == 7),
        ("population.clients=50", lambda t: t["population"]["clients"] == 50),
        ("task.batch_size=3", lambda t: [task["batch_size"] for task in t["task"]] == [3, 3]),
        ("task.b.batch_size=3", lambda t: [task.get("batch_size") for task in t["task"]] == [None, 3]),
        ("task.b.partition.share=0.1", lambda t: t["task"][1]["partition"]["share"] == 0.1),
        ("method=full", lambda t: t["method"] == "full"),
        (
            "method.participation=clients",
            lambda t: t["method"] == {"name": "random", "participation": "clients"},
        ),
        ("evaluation.thresholds=[0.1, 0.2]", lambda t: t["evaluation"]["thresholds"] == [0.1, 0.2]),
    ],
)
def test_overrides_reach_their_key(override, read):
    changed = table()
    put(changed, override)
    assert read(changed)
    experiment_of(**changed)


def test_arrays_of_ones_own_are_trained_on(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    experiment = fedmux.Experiment(
        rounds=15,
        method="full",
        population={"clients": 5},
        tasks=[{"name": "sign", "data": (x, y), "model": "mlp", "learning_rate": 0.3}],
    )
    run = fedmux.run(experiment, tmp_path / "run")
    assert run.summary["tasks"]["sign"]["last_accuracy"] > 0.85
    with refused(('task 1 "sign"', "data"), ("arrays", "resume in Python")):
        (tmp_path / "run" / "summary.json").unlink()
        fedmux.resume(tmp_path / "run")
    assert fedmux.resume(tmp_path / "run", experiment=experiment).finished


def test_numbers_can_be_learned_as_well_as_labels(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5])).astype(np.float32)[:, None]
    experiment = fedmux.Experiment(
        rounds=20,
        method="full",
        population={"clients": 4},
        tasks=[
            {"name": "line", "data": (x, y), "model": "mlp", "loss": "squared-error", "learning_rate": 0.05}
        ],
    )
    summary = fedmux.run(experiment, tmp_path / "run").summary
    assert summary["tasks"]["line"]["last_loss"] < 0.1
    assert summary["tasks"]["line"]["metric"] == "mean-squared-error"
    assert summary["tasks"]["line"]["last_score"] == pytest.approx(summary["tasks"]["line"]["last_loss"])


def test_the_public_names_are_all_there():
    for name in fedmux.__all__:
        assert getattr(fedmux, name) is not None
    assert {*fedmux._HOME, "trackers"} == set(fedmux.__all__)
