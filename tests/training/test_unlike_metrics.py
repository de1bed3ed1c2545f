"""Tasks with unlike metrics in one run: each in its own unit, compared by progress alone."""

import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, roc_auc_score

import fedmux
from commands import fedmux as command
from conftest import experiment_of, interrupted_after, table
from fedmux.runs.history import History
from fedmux.training.yardstick import Yardstick
from refusals import refused


def data(seed: int, labels: bool) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    train, test = rng.normal(size=(160, 4)).astype(np.float32), rng.normal(size=(60, 4)).astype(np.float32)

    def wanted(x: np.ndarray) -> np.ndarray:
        return (x[:, 0] > 0.5).astype(np.int64) if labels else (10 + 3 * x[:, 0]).astype(np.float32)

    return train, wanted(train), test, wanted(test)


def experiment(method: Any = "random", **changes: Any) -> fedmux.Experiment:
    own = {"model": "mlp", "partition": "iid", "batch_size": 16, "local_epochs": 1}
    heat = {
        **own,
        "name": "heat",
        "data": data(0, labels=False),
        "loss": "squared-error",
        "learning_rate": 0.01,
    }
    heat["metric"] = {"name": "mean-absolute-error", "unit": "°C"}
    sick = {**own, "name": "sick", "data": data(1, labels=True), "metric": "auc", "learning_rate": 0.2}
    digits = {**own, "name": "digits", "data": "digits", "learning_rate": 0.1}
    tasks = changes.pop("tasks", [heat, sick, digits])
    wanted = {"rounds": 4, "population": {"clients": 8, "jobs": 6}, "evaluation": {"samples": 200}, **changes}
    return fedmux.Experiment(method=method, task=tasks, **wanted)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedmux.Run:
    return fedmux.run(experiment(), tmp_path_factory.mktemp("unlike") / "run")


def test_each_task_is_scored_in_its_own_unit_and_only_progress_is_averaged(run: fedmux.Run) -> None:
    first, *_, last = run.metrics
    assert last.accuracy is None and last.progress is not None
    assert "accuracy" not in run.summary and "accuracy" not in last.line()
    heat, sick, digits = (last.tasks[name] for name in ("heat", "sick", "digits"))
    assert (heat.metric, sick.metric, digits.metric) == ("mean-absolute-error", "auc", "accuracy")
    assert heat.progress == pytest.approx(1 - heat.score / first.tasks["heat"].score)  # from the start to 0
    assert sick.progress == pytest.approx(2 * sick.score - 1)  # from 0.5 to 1
    assert digits.progress == digits.score == digits.accuracy
    parts = [heat.progress, sick.progress, digits.progress]
    assert last.progress.mean == pytest.approx(np.mean(parts))
    assert last.progress.minimum == pytest.approx(min(parts))
    assert first.progress.minimum <= 0 and first.tasks["heat"].progress == 0
    final = run.summary["tasks"]["heat"]
    assert (final["unit"], final["better"]) == ("°C", "lower")
    assert final["progress"] == pytest.approx(1 - final["score"] / first.tasks["heat"].score)


def test_scores_are_those_of_the_final_models(run: fedmux.Run) -> None:
    """By a plain forward pass and scikit-learn, on the points that are reported."""
    from fedmux.training.assembly import assemble

    wanted = {"heat": mean_absolute_error, "sick": lambda y, out: roc_auc_score(y, out[:, 1] - out[:, 0])}
    for task in assemble(experiment()).tasks[:2]:
        task.module.load_state_dict(run.model(task.name))
        x, y = task.test
        outputs = task.module.eval()(x).detach().numpy()
        found = wanted[task.name](y.numpy(), outputs)
        assert run.metrics[-1].tasks[task.name].score == pytest.approx(found, rel=1e-5)


def test_a_run_with_unlike_metrics_resumes_to_the_same_bits(run: fedmux.Run, tmp_path: Path) -> None:
    often = experiment(output={"checkpoint_every": 1})
    with interrupted_after(2):
        fedmux.run(often, tmp_path / "run")
    again = fedmux.resume(tmp_path / "run", experiment=often)
    assert [entry.tasks for entry in again.metrics] == [entry.tasks for entry in run.metrics]
    assert again.summary["progress"] == run.summary["progress"]


def test_methods_that_look_at_accuracies_see_progress(tmp_path: Path) -> None:
    """An error of 10 °C is not twenty times as bad as an error rate of a half."""
    run = fedmux.run(experiment({"name": "fedfairmmfl", "measure": "error"}), tmp_path / "run")
    share = np.bincount(run.allocation["task"], minlength=3) / len(run.allocation)
    assert (share > 0.1).all()


def test_a_metric_without_a_target_leaves_no_mean_over_tasks(tmp_path: Path) -> None:
    tasks = table()["task"]
    tasks[1] |= {"metric": {"name": "fedmux.tasks.metrics:accuracy", "label": "hits", "unit": "of 1"}}
    small = fedmux.Experiment.model_validate(table(rounds=2, task=tasks))
    run = fedmux.run(small, tmp_path / "run")
    assert run.metrics[-1].progress is None and not {"accuracy", "progress"} & run.summary.keys()
    assert run.summary["tasks"]["b"]["last_score"] == run.metrics[-1].tasks["b"].score
    assert run.summary["tasks"]["b"]["progress"] is None
    history = History.read(tmp_path / "run")
    assert history.overall() is None and history.scales["b"].show(0.25) == "0.25 of 1"


def hits(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).float()


@pytest.mark.parametrize(
    ("metric", "name", "written"),
    [
        (hits, "hits", "test_unlike_metrics:hits"),
        ({"name": hits, "unit": "%"}, "hits", {"name": "test_unlike_metrics:hits", "unit": "%"}),
        (
            {"name": lambda o, t: hits(o, t), "label": "found"},
            "found",
            {"name": "<lambda>", "label": "found"},
        ),
    ],
    ids=["function", "table", "lambda"],
)
def test_a_function_is_a_metric_in_python(metric: Any, name: str, written: Any, tmp_path: Path) -> None:
    tasks = table()["task"]
    tasks[1] |= {"metric": metric}
    run = fedmux.run(fedmux.Experiment(**table(rounds=1, task=tasks)), tmp_path / "run")
    last = run.metrics[-1].tasks
    assert last["b"].metric == name and 0 <= last["b"].score <= 1
    assert run.table["task"][1]["metric"] == written
    assert History.read(run.path).scales["b"].name == name


@pytest.mark.parametrize(
    ("metric", "where", "remedy"),
    [
        ({"name": "accuracy", "unit": "points"}, ("metric", "unit"), "leave unit out"),
        ({"name": "auc", "better": "lower"}, ("metric", "better"), "function of your own"),
        ({"name": "accuracy", "target": 0.0, "start": 0.0}, "target", "differ from start"),
        ({"name": "fedmux.tasks.metrics:accuracy", "start": "constant"}, "start", "give the score itself"),
        ({"name": "acuracy"}, 'metric "acuracy"', '"accuracy"'),
        ({"unit": "mm"}, ("metric", "name"), ""),
        ({"name": "auc", "target": "high"}, ("metric", "target"), "number"),
    ],
)
def test_a_metric_that_contradicts_itself_is_refused(metric: Any, where: Any, remedy: Any) -> None:
    tasks = table()["task"]
    tasks[1] |= {"metric": metric}
    with refused(where, remedy):
        experiment_of(**table(task=tasks))


def test_a_score_in_per_cent_that_is_no_share_is_refused_before_any_training(tmp_path: Path) -> None:
    (tmp_path / "hundred.py").write_text("def points(o, t):\n    return 87.0 + 0 * o[:, 0]\n")
    where = ("--set", 'task.a.metric={name="hundred:points", unit="%"}', "--set", "rounds=1")
    (tmp_path / "small.toml").write_text(_toml())
    refusal = command("run", "small.toml", *where, cwd=tmp_path).refusal()
    assert 'task "a"' in refusal and "87" in refusal and "divide it by 100" in refusal


def test_a_task_that_starts_at_its_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "still.py").write_text("def same(o, t):\n    return 2 + 0 * o[:, 0]\n")
    (tmp_path / "small.toml").write_text(_toml())
    metric = 'task.a.metric={name="still:same", target=2.0}'
    refusal = command("run", "small.toml", "--set", metric, cwd=tmp_path).refusal()
    assert 'task "a"' in refusal and "starts at its target, 2" in refusal and "metric.start" in refusal


def test_an_accuracy_may_start_at_the_majority_class(tmp_path: Path) -> None:
    tasks = table()["task"]
    tasks[0] |= {"metric": {"name": "accuracy", "start": "constant"}}
    run = fedmux.run(fedmux.Experiment.model_validate(table(rounds=2, task=tasks)), tmp_path / "run")
    one, other = (run.metrics[-1].tasks[name] for name in ("a", "b"))
    assert one.progress < one.accuracy and other.progress == other.accuracy
    assert run.metrics[-1].accuracy is None and run.metrics[-1].progress is not None
    assert run.summary["tasks"]["a"]["progress"] < run.summary["tasks"]["a"]["score"]


DATA = """
import numpy as np
def numbers(wanted):
    rng = np.random.default_rng(0)
    x, held_out = rng.normal(size=(160, 4)).astype(np.float32), rng.normal(size=(61, 4)).astype(np.float32)
    return x, wanted(x), held_out, wanted(held_out)
def heat():
    return numbers(lambda x: (10 + 3 * x[:, 0]).astype(np.float32))
def sick():
    return numbers(lambda x: (x[:, 0] > 0.5).astype(np.int64))
"""


def test_two_processes_come_to_the_same_scores_as_one(tmp_path: Path) -> None:
    """Also of metrics that need all points at once."""
    (tmp_path / "numbers_here.py").write_text(DATA)
    heat = 'name = "heat"\ndata = "numbers_here:heat"\nmodel = "mlp"\nloss = "squared-error"\n'
    sick = 'name = "sick"\ndata = "numbers_here:sick"\nmodel = "mlp"\nmetric = "auc"\nlearning_rate = 0.2\n'
    head = _toml().replace('random"', 'full"').partition("[[task]]")[0]
    tasks = [f'{heat}metric = "{name}"\nlearning_rate = 0.01\n' for name in ("r2",)] + [sick]
    stop = "[stop]\naccuracy = 0.999\n"  # so that both held-out parts are looked at before any training
    (tmp_path / "e.toml").write_text(head + stop + "".join(f"[[task]]\n{task}" for task in tasks))
    for workers in (1, 2):
        command("run", "e.toml", "--workers", workers, "-o", f"run-{workers}", "-q", cwd=tmp_path).done()
    one, two = (fedmux.Run(tmp_path / f"run-{workers}").metrics for workers in (1, 2))
    for task in ("heat", "sick"):
        for key in ("score", "progress", "loss"):
            found = [[getattr(entry.tasks[task], key) for entry in metrics] for metrics in (one, two)]
            assert found[0] == pytest.approx(found[1], rel=1e-4), (task, key)
        spread = [metrics[-1].tasks[task].clients["median"] for metrics in (one, two)]
        assert spread[0] == pytest.approx(spread[1], rel=1e-4)


def test_a_metric_of_ones_own_called_accuracy_is_not_ours(tmp_path: Path) -> None:
    """It may be anything, and has no target."""
    (tmp_path / "percents.py").write_text(
        "def accuracy(o, t):\n    return 50.0 * (o.argmax(1) == t).float()\n"
    )
    (tmp_path / "small.toml").write_text(_toml())
    own = ("--set", "task.a.metric=percents:accuracy", "-o", "run", "--json")
    summary = json.loads(command("run", "small.toml", *own, cwd=tmp_path).done().out)
    assert not {"accuracy", "progress"} & summary.keys()
    assert summary["tasks"]["a"]["metric"] == "percents:accuracy" and summary["tasks"]["a"]["score"] > 1


def test_figures_are_called_the_same_in_every_round(tmp_path: Path) -> None:
    """Whatever their values, in rounds without evaluation, and before unlike tasks join."""
    tasks = table()["task"]
    tasks[0] |= {"metric": {"name": "accuracy", "start": 0.0, "target": 1.0}}
    tasks[1] |= {"metric": {"name": "accuracy", "start": "constant"}}
    events = [{"round": 3, "join_tasks": ["b"]}]
    small = table(rounds=5, task=tasks, event=events, evaluation={"every": 2})
    run = fedmux.run(fedmux.Experiment.model_validate(small), tmp_path / "run")
    assert all("accuracy" not in entry for entry in run.metrics)
    assert [entry.round for entry in run.metrics if "progress" in entry] == [0, 2, 4, 5]
    frames = fedmux.load(tmp_path / "run")
    assert not frames.rounds["mean_progress"][[0, 2, 4, 5]].isna().any()
    assert set(frames.metrics["metric"]) == {"accuracy"}
    assert run.metrics[0].tasks["a"].plain and not run.metrics[-1].tasks["b"].plain


def test_a_comparison_over_metrics_has_one_table(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(_toml())
    vary = ("--methods", "random", "--vary", "task.a.metric=accuracy,perplexity", "-o", "c")
    shown = command("compare", "small.toml", *vary, cwd=tmp_path).done().out
    assert "progress" in shown
    assert re.search(r"\d% accuracy ", shown) and re.search(
        r"\d perplexity ", shown
    )  # each by its own metric
    assert {row["measure"] for row in json.loads((tmp_path / "c" / "results.json").read_text())} == {
        "progress"
    }


def test_a_folder_from_before_unlike_metrics_reads_and_is_not_mixed(tmp_path: Path) -> None:
    """Its regression was scored by the negative squared error, under the name of accuracy."""
    (tmp_path / "numbers_here.py").write_text(DATA)
    task = 'name = "a"\ndata = "numbers_here:heat"\nmodel = "mlp"\nloss = "squared-error"\n'
    task += "learning_rate = 0.01\n"
    (tmp_path / "e.toml").write_text(_toml().partition("[[task]]")[0] + f"[[task]]\n{task}")
    command("run", "e.toml", "-o", "old", "-q", cwd=tmp_path).done()
    old = tmp_path / "old"
    resolved = (old / "experiment.toml").read_text()
    (old / "experiment.toml").write_text(resolved.replace('metric = "mean-squared-error"\n', ""))
    lines = [json.loads(line) for line in (old / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        figures = line["tasks"]["a"]
        figures["accuracy"] = -figures.pop("score")
        del figures["metric"], figures["progress"], line["progress"]
        line["accuracy"] = {"mean": figures["accuracy"], "minimum": figures["accuracy"], "variance": 0.0}
    (old / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (old / "summary.json").unlink()
    history = History.read(old)
    assert history.scales["a"].name == "negative-squared-error" and history.score("a") < 0
    assert history.overall() is None
    assert "%" not in json.loads(command("list", "--json", tmp_path, cwd=tmp_path).done().out)[0]["accuracy"]
    refusal = command("resume", "old", cwd=tmp_path).refusal()
    assert refusal.startswith("old: ") and "metrics" in refusal and "-o" in refusal


def test_a_run_keeps_its_metrics(tmp_path: Path) -> None:
    with interrupted_after(1):
        fedmux.run(experiment(output={"checkpoint_every": 1}), tmp_path / "run")
    tasks = [task.model_copy(update={"metric": None}) for task in experiment().tasks]
    other = experiment().model_copy(update={"tasks": tasks, "output": experiment().output})
    with refused(str(tmp_path / "run"), ("metrics", "another -o")):
        fedmux.resume(tmp_path / "run", experiment=other)


def test_where_progress_begins_is_kept_in_a_checkpoint(tmp_path: Path) -> None:
    """A module of one's own may begin elsewhere when it is made again."""
    begun = experiment(output={"checkpoint_every": 1})
    with interrupted_after(2):
        fedmux.run(begun, tmp_path / "run")
    lay = Yardstick.lay

    def elsewhere(self: Yardstick, models: Any, part: str) -> None:
        lay(self, models, part)
        self.starts[part] = [start + 1 for start in self.starts[part]]

    with mock.patch.object(Yardstick, "lay", elsewhere):
        run = fedmux.resume(tmp_path / "run", experiment=begun)
    first, last = run.metrics[0].tasks["heat"], run.metrics[-1].tasks["heat"]
    assert last.progress == pytest.approx(1 - last.score / first.score)


def test_a_metric_that_is_not_defined_on_the_held_out_points_is_told(tmp_path: Path) -> None:
    x, _, held_out, _ = data(0, labels=True)
    one_label = np.zeros(len(held_out), np.int64)
    task = {"name": "sick", "data": (x, np.arange(len(x)) % 2, held_out, one_label), "model": "mlp"}
    with refused(('task "sick"', "auc", "test part"), ("hold out more points", "another metric")):
        fedmux.run(experiment(tasks=[{**task, "metric": "auc", "learning_rate": 0.1}]), tmp_path / "run")


@pytest.mark.parametrize("metric", [None, "perplexity", "fedmux.tasks.metrics:accuracy"])
def test_a_task_whose_name_has_dots_is_not_taken_for_damage(metric: str | None, tmp_path: Path) -> None:
    tasks = [{**table()["task"][0], "name": "v1.2", "metric": metric}]
    run = fedmux.run(experiment_of(**table(rounds=1, task=tasks)), tmp_path / "run")
    assert run.summary["tasks"].keys() == {"v1.2"}
    assert History.read(run.path).problem is None


def test_a_target_accuracy_needs_targets() -> None:
    tasks = table()["task"]
    tasks[0] |= {"metric": "fedmux.tasks.metrics:absolute_error"}
    with refused(("stop.accuracy", 'task "a"'), "metric.target"):
        experiment_of(**table(task=tasks, stop={"accuracy": 0.5}))


def test_tables_show_each_score_in_its_unit(run: fedmux.Run) -> None:
    shown = command("show", run.path, cwd=run.path.parent).done().out
    heat = run.summary["tasks"]["heat"]
    assert f"{heat['score']:.4g} °C" in shown and f"{heat['progress']:.1%}" in shown
    assert "mean-absolute-error" in shown and "auc" in shown
    listed = json.loads(command("list", run.path.parent, "--json", cwd=run.path.parent).done().out)
    assert listed[0]["accuracy"] == f"{run.summary['progress']['mean']:.1%} progress"


def _toml() -> str:
    return """
rounds = 2
method = "random"
[population]
clients = 4
[[task]]
name = "a"
data = "digits"
model = "mlp"
learning_rate = 0.1
"""
