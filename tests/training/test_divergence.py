"""One task that diverges is set back and paused; the others end as if it had left."""

import json

import numpy as np
import pytest
import torch

import fedmux
from conftest import METHODS, ONE_TASK, experiment_of, resumes_to_the_same_bits, table
from fedmux.experiment import Experiment
from fedmux.fleet import TRAIN
from fedmux.model import Model
from fedmux.report.charts import spec, task_accuracy
from fedmux.report.page import report
from fedmux.runs.history import History
from fedmux.training.assembly import assemble
from fedmux.training.divergence import EXPLODED, LASTING, MOST_REFUSED, TOO_LARGE, Watch
from fedmux.training.training import Training
from fedmux.ui import views
from refusals import refused
from stepping import zero_models

SEVERAL = [method for method in METHODS if method not in ONE_TASK]


def made(method: str = "random", rate: float = 1000.0, **changes) -> Experiment:
    """Three tasks, of which the last has a learning rate that it cannot bear."""
    small = table(method=method, rounds=8, **changes)
    third = {"name": "c", "learning_rate": rate, "local_epochs": 3}
    small["task"] = small["task"] + [{**small["task"][0], **third}]
    return experiment_of(**small)


def others(run: fedmux.Run) -> tuple[list[bytes], bytes]:
    """All that became of tasks a and b."""
    jobs = run.allocation
    models = [(run.path / "models" / f"{name}.safetensors").read_bytes() for name in ("a", "b")]
    return models, jobs[jobs["task"] < 2].tobytes()


@pytest.mark.parametrize("method", SEVERAL)
def test_the_other_tasks_end_exactly_as_if_the_one_that_diverges_had_left(method, tmp_path):
    run = fedmux.run(made(method, 1e30), tmp_path / "run", notice=lambda line: None)
    (told,) = run.summary["diverged"].values()
    assert told["task"] == "c" and told["paused"] and told["round"] <= 7
    leaving = [{"round": told["round"] + 1, "leave_tasks": ["c"]}]
    left = fedmux.run(made(method, 1e30, event=leaving), tmp_path / "left", notice=lambda line: None)
    assert others(run) == others(left)
    assert not (run.allocation["task"][run.allocation["round"] > told["round"]] == 2).any()
    assert all(entry["tasks"]["c"]["jobs"] == 0 for entry in run.metrics[told["round"] + 1 :])
    marked = [entry["tasks"]["c"].get("diverged") for entry in run.metrics]
    assert marked == [None] * told["round"] + [told["round"]] * (9 - told["round"])
    assert run.summary["tasks"]["c"]["diverged"] == told["round"] and run.summary["rounds"] == 8
    assert all(torch.isfinite(weights).all() for weights in run.model("c").values())
    assert "diverged" not in run.summary["tasks"]["a"]


@pytest.mark.parametrize("method", SEVERAL)
@pytest.mark.parametrize(("rate", "stops"), [(1000.0, (2, 4)), (1e30, (1, 3))])
def test_a_run_in_which_a_task_diverges_resumes_bit_for_bit(method, rate, stops, tmp_path):
    """At 1e30 after one to four rounds, at 1000 later or not at all, though its loss is soon too large."""
    experiment = made(method, rate, output={"checkpoint_every": 1}, evaluation={"every": 2, "clients": False})
    resumes_to_the_same_bits(experiment, tmp_path, *stops)


def test_a_paused_task_keeps_the_last_model_that_was_looked_at_and_found_sound(tmp_path):
    """Evaluated after every second round: what became of it in the first is not taken for sound."""
    experiment = made("full", 1e6, evaluation={"every": 2, "clients": False})
    run = fedmux.run(experiment, tmp_path / "run", notice=lambda line: None)
    told = run.summary["diverged"]["c"]
    assert (told["model"], told["round"]) == (0, 2) and "before training it was 2." in told["reason"]
    task = assemble(experiment).tasks[2]
    start, kept = task.weights(task.layout.read()), run.model("c")
    assert all(torch.equal(value, kept[name]) for name, value in start.items())
    scores = [entry["tasks"]["c"]["accuracy"] for entry in run.metrics if "accuracy" in entry]
    assert len(scores) == 5 and len(set(scores)) == 1


def test_workers_come_to_the_same_verdict(tmp_path):
    alone = fedmux.run(made("mmfl-lvr", 1e30), tmp_path / "alone", notice=lambda line: None)
    together = fedmux.run(
        made("mmfl-lvr", 1e30, execution={"workers": 2}), tmp_path / "together", notice=lambda line: None
    )
    assert together.summary["diverged"] == alone.summary["diverged"]
    failures = [[entry.get("failures", []) for entry in run.metrics] for run in (alone, together)]
    assert failures[0] == failures[1] and any(failures[0])
    assert (alone.allocation["client"] == together.allocation["client"]).all()


def test_retry_halves_the_learning_rate_until_it_can_be_borne(tmp_path):
    told: list[str] = []
    experiment = made("full", 1e30, stop={"divergence": "retry", "retries": 2})
    run = fedmux.run(experiment, tmp_path / "run", notice=told.append)
    rates = [entry["tasks"]["c"]["learning_rate"] for entry in run.metrics[1:]]
    assert rates[0] == 1e30 and sorted(set(rates), reverse=True)[:3] == [1e30, 5e29, 2.5e29]
    events = [event for entry in run.metrics for event in entry.get("diverged", [])]
    assert [(event["retries"], event["paused"]) for event in events] == [(1, False), (2, False), (2, True)]
    assert sum("continues from its model of round" in line for line in told) == 2
    assert "is paused with its model of round" in told[-1]
    saved = fedmux.run(made("full", 1e6, stop={"divergence": "retry", "retries": 40}), tmp_path / "saved")
    assert "diverged" not in saved.summary
    assert any(entry.get("diverged") for entry in saved.metrics)


def test_a_retried_run_resumes_with_the_rate_it_had(tmp_path):
    experiment = made("mmfl-gvr*", 1000.0, stop={"divergence": "retry"}, output={"checkpoint_every": 1})
    resumes_to_the_same_bits(experiment, tmp_path, 3)


def test_stop_ends_the_run_with_the_reason_and_a_remedy(tmp_path):
    with refused(('task "c"', "diverged", "round "), ("lower learning_rate", "clip")):
        fedmux.run(made("random", 1e30, stop={"divergence": "stop"}), tmp_path / "run")


def test_a_run_without_a_task_left_to_train_ends_early_and_is_complete(tmp_path):
    small = table(rounds=50)
    for task in small["task"]:
        task["learning_rate"] = 1000.0
    run = fedmux.run(experiment_of(**small), tmp_path / "run", notice=lambda line: None)
    assert set(run.summary["diverged"]) == {"a", "b"} and run.summary["rounds"] < 20
    last = {name: values["last_accuracy"] for name, values in run.summary["tasks"].items()}
    assert last == {name: values["accuracy"] for name, values in run.metrics[-1]["tasks"].items()}


class FarOff(torch.nn.Module):
    """A line whose output is not finite for points that say so."""

    def __init__(self, **_: object) -> None:
        super().__init__()
        self.line = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(x) / (x[:, :1] < 50)  # 0 / 0 or 1 / 0 beyond


def poisoned(method: str, rounds: int = 5, **changes) -> Experiment:
    """One point of one client makes its loss and its update not finite; held-out points are fine."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (200, 2)).astype(np.float32)
    x[7] = 100.0
    y = (x @ np.array([1.0, -2.0])).astype(np.float32)
    task = {
        "name": "line",
        "data": (x, y, x[100:160], y[100:160]),
        "model": "test_divergence:FarOff",
        "loss": "squared-error",
        "learning_rate": 0.05,
        "local_epochs": 1,
    }
    small = table(method=method, rounds=rounds, task=[task, {**task, "name": "other"}], **changes)
    small["population"] = {"clients": 10, "jobs": 8, "processors": 1}
    return experiment_of(**small)


@pytest.mark.parametrize(
    "method", ["full", "mmfl-lvr", "mmfl-gvr*", "mmfl-fairvr", "q-ffl", "mmfl-group", "mifa"]
)
def test_a_single_client_s_nonsense_is_refused_with_a_record_and_the_task_goes_on(method, tmp_path):
    told: list[str] = []
    run = fedmux.run(poisoned(method), tmp_path / "run", notice=told.append)
    failures = [failure for entry in run.metrics for failure in entry.get("failures", [])]
    assert failures and "diverged" not in run.summary
    assert {failure["kind"] for failure in failures} == {"not-finite"}
    if method in ("full", "mifa"):  # without reports
        assert {(f["phase"], f["reason"]) for f in failures} == {("train.multi", "the update is not finite")}
    assert len({failure["client"] for failure in failures}) <= 2  # one client of each task
    assert len(told) == len(set(told)) and all("not finite" in line for line in told)  # once of each
    refused = {(failure["client"], failure["task"]) for failure in failures}
    names = ["line", "other"]
    for job in run.allocation:
        if (str(job["client"]), names[job["task"]]) in refused:
            assert job["weight"] == 0
    losses = [entry["tasks"]["line"]["loss"] for entry in run.metrics]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    text = (run.path / "metrics.jsonl").read_text()
    assert [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


@pytest.mark.parametrize("method", ["mmfl-group", "random"])
def test_a_client_that_is_always_bad_pauses_no_task_however_long_it_takes(method, tmp_path):
    """Groups ask a client without a group for its losses in every round: it alone is asked, and refused."""
    run = fedmux.run(poisoned(method, rounds=40), tmp_path / "run", notice=lambda line: None)
    assert "diverged" not in run.summary and run.summary["rounds"] == 40


class Normed(torch.nn.Module):
    """With batch statistics: buffers that a round without updates hands on as they are."""

    def __init__(self, **_: object) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.flatten(1))


def test_checkpoints_between_evaluations_hold_models_with_buffers(tmp_path):
    small = table(rounds=6, evaluation={"every": 5, "clients": False}, output={"checkpoint_every": 1})
    small["population"] |= {"jobs": 1.0}
    for task in small["task"]:
        task |= {"model": "test_divergence:Normed", "model_options": {}}
    run = fedmux.run(experiment_of(**small), tmp_path / "run")
    assert any(entry["tasks"]["a"]["jobs"] == 0 for entry in run.metrics[1:])


def test_a_task_that_starts_from_a_good_model_may_get_worse_without_being_taken_for_diverged(tmp_path):
    """Its loss is measured against that of a model of zeros, too: log 10 of ten classes."""
    first = Training(made("full", 0.1), assemble(made("full", 0.1)), None, ())
    first.start(lambda line: None)
    assert first.state.watch.naive == pytest.approx(np.log(10), rel=1e-5)
    watch = Watch(zero_models(1, 2))
    watch.naive[:] = np.log(10)
    watch.exploded(np.array([0.0034]), 0)
    assert not any(watch.exploded(np.array([0.3]), number) for number in range(1, 20))
    assert any(watch.exploded(np.array([200.0]), number) for number in range(20, 40))


def test_a_task_that_starts_without_a_finite_loss_is_refused_before_any_work(tmp_path):
    small = table()
    torch.manual_seed(0)
    run = fedmux.run(experiment_of(**small), tmp_path / "first")
    from safetensors.torch import save_file

    weights = {name: torch.full_like(value, np.nan) for name, value in run.model("a").items()}
    save_file(weights, tmp_path / "nan.safetensors")
    small["task"][0]["initial_weights"] = str(tmp_path / "nan.safetensors")
    with refused(('task "a"', "before any training"), ("not finite", "check its data")):
        fedmux.run(experiment_of(**small), tmp_path / "run")


def test_pages_charts_and_tables_show_what_diverged(tmp_path):
    run = fedmux.run(made("full", 1e6), tmp_path / "run", notice=lambda line: None)
    history = History.read(run.path)
    assert history.diverged == {"c": 1}
    assert "Diverged and paused" in report([history], "title") and "full, seed 0: c, round 1" in report(
        [history], "t"
    )
    drawn = json.dumps(spec(task_accuracy(run.metrics, "full")))
    assert "cross: diverged and set back" in drawn and '"shape": "cross"' in drawn
    sound = fedmux.run(made("full", 0.1), tmp_path / "sound")
    assert "cross" not in json.dumps(spec(task_accuracy(sound.metrics, "full")))
    assert [row["name"] for row in views.tasks(history)] == ["a", "b", "c (diverged in round 1)"]


# --- the rules ----------------------------------------------------------------------------------------------


def test_a_loss_has_exploded_beyond_ten_thousand_times_its_start():
    watch = Watch(zero_models(5, 2))
    start = np.array([2.0, -3.0, 0.0, 2.0, np.nan])
    assert watch.exploded(start, 0) == {}
    edge = np.array([2 + 2 * EXPLODED, -3 + 3 * EXPLODED, 1e30, 5.0, 7.0])
    assert watch.exploded(edge, 1) == {}  # a start of 0 says nothing, the last has only now begun
    far = np.array([2.1 + 2 * EXPLODED, 0.1 + 3 * EXPLODED, np.inf, np.nan, 8e4])
    beyond = watch.exploded(far, 2)
    assert list(beyond) == [2, 0, 1, 4]
    assert beyond[2] == "its loss is not finite" and beyond[0].endswith("before training it was 2")


def test_a_loss_that_is_merely_too_large_may_come_back_or_else_lasts():
    models = zero_models(1, 2)
    watch, everything = Watch(models), np.array([True])
    watch.exploded(np.array([2.0]), 0)
    large = np.array([2.1 + 2 * TOO_LARGE])
    for number in range(1, LASTING):
        assert watch.exploded(large, number) == {}
        assert watch.exploded(large, number) == {}  # the same model again
        watch.keep(zero_models(1, 2), everything, number)
        assert watch.sound[0] is models[0]
    back = zero_models(1, 2)
    assert watch.exploded(np.array([3.0]), LASTING) == {}
    watch.keep(back, everything, LASTING)
    assert watch.sound[0] is back[0]
    found = [watch.exploded(large, LASTING + 1 + number) for number in range(LASTING)]
    assert found[:-1] == [{}] * (LASTING - 1)
    assert found[-1][0].endswith("before training it was 2, and too large for 5 rounds")


UPDATES = {0: "most of its clients' updates are not finite"}


def judged(watch: Watch, sound: int, clients: str, there: int = 100) -> dict[int, str]:
    return watch.refusals(TRAIN, np.array([sound]), [set(clients)], np.array([there]))


def test_most_of_what_different_clients_send_must_be_refused_time_after_time():
    watch = Watch(zero_models(1, 2))
    for client in "abcd":
        assert judged(watch, 0, client) == {}
    assert judged(watch, 0, "d") == {} and len("abcd") == MOST_REFUSED - 1  # the same again
    assert judged(watch, 0, "e") == UPDATES
    watch = Watch(zero_models(1, 2))
    for client in "abcdefghij":  # bad clients among good ones
        assert judged(watch, 0, client) == {}
        assert judged(watch, 3, client) == {}
    assert judged(watch, 5, "abcdef") == UPDATES


def test_one_bad_client_of_a_few_is_not_most_of_them():
    watch = Watch(zero_models(1, 2))
    assert all(judged(watch, 0, "a", there=3) == {} for _ in range(50))
    assert judged(watch, 0, "b", there=3) == UPDATES


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_that_is_not_finite_is_found_in_parameters_and_buffers(value):
    sound = Model(torch.ones(3), torch.ones(2, dtype=torch.float64))
    parameters = Model(torch.tensor([1.0, value, 1.0]), sound.buffers)
    buffers = Model(sound.parameters, torch.tensor([value, 1.0], dtype=torch.float64))
    none = Model(torch.ones(3), torch.zeros(0, dtype=torch.float64))
    assert list(Watch([sound] * 4).broken([sound, parameters, buffers, none])) == [1, 2]
