"""What a tracker wrote, read back with its tool's own reader, is what the run measured: every round once."""

import csv
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

import fedmux
from commands import fedmux as command
from commands import small_experiment
from conftest import table
from fedmux.cli.train import Log
from fedmux.errors import FedmuxError, Interrupted
from fedmux.experiment.mistakes import validated
from fedmux.runs.rounds import Failure, Round, TaskRound
from fedmux.runs.trackers import CSV, TRACKERS, MLflow, TensorBoard, Tracker, WandB, by_name
from fedmux.runs.trackers.tracker import figures, parameters
from refusals import refuses

Read = dict[str, list[tuple[int, float]]]  # (round, value) by name, in the order they are stored


def read_csv(run: Path) -> Read:
    found: Read = {}
    with (run / "csv/metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            number = int(row.pop("round"))
            for key, value in row.items():
                if value:
                    found.setdefault(key, []).append((number, float(value)))
    return found


def read_tensorboard(run: Path) -> Read:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def mlflow_run(run: Path) -> tuple[Any, Any]:
    from mlflow import MlflowClient

    client = MlflowClient((run / "mlruns").as_uri())
    [experiment] = [e for e in client.search_experiments() if e.name == "small"]
    [found] = client.search_runs([experiment.experiment_id])
    return client, found


def read_mlflow(run: Path) -> Read:
    client, found = mlflow_run(run)
    histories = {key: client.get_metric_history(found.info.run_id, key) for key in found.data.metrics}
    return {key: [(metric.step, metric.value) for metric in history] for key, history in histories.items()}


def cut(tracker: Tracker) -> None:
    """The file that it writes ends in the middle of its last round."""
    [path] = [*tracker.run.glob("csv/metrics.csv"), *tracker.run.glob("tensorboard/*")]
    os.truncate(path, path.stat().st_size - 5)


def half_logged(tracker: Tracker) -> None:
    """Another round, without the figure that comes last."""
    half = figures(fedmux.Run(tracker.run).metrics[-1])
    del half["seconds"]
    tracker.log(4, half)


class Kept(NamedTuple):
    """What the tests need to know of a tracker."""

    read: Callable[[Path], Read]
    break_off: Callable[[Tracker], None]  # leaves a round half written, as `kill -9` does
    finals: int  # how often the mean accuracy of the summary is among what is read


KEPT = {
    CSV: Kept(read_csv, cut, 0),
    TensorBoard: Kept(read_tensorboard, cut, 1),
    MLflow: Kept(read_mlflow, half_logged, 1),
}
READERLESS = [WandB]  # has a test of its own, below
UNKNOWN = {*TRACKERS.values()} - {*KEPT, *READERLESS}
assert not UNKNOWN, f"{UNKNOWN}: say in KEPT how to read back what it wrote"
every = pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.name)


def experiment(**changes: Any) -> fedmux.Experiment:
    return validated(fedmux.Experiment, table(**changes), "test")


def check(kind: type[Tracker], run: Path) -> None:
    """Every figure of every round is there once, in order, and nothing else."""
    expected: Read = {}
    for entry in fedmux.Run(run).metrics:
        for key, value in figures(entry).items():
            expected.setdefault(key, []).append((entry.round, value))
    found = {key: values for key, values in KEPT[kind].read(run).items() if not key.startswith("final/")}
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert [step for step, _ in found[key]] == [step for step, _ in values], key
        if key != "seconds" and not key.startswith("phases/"):  # of a round that was trained twice
            assert [v for _, v in found[key]] == pytest.approx([v for _, v in values], rel=1e-6), key


class Fails:
    """An observer at whose round something goes wrong."""

    def __init__(self, round: int, error: BaseException) -> None:
        self.round, self.error = round, error

    def __call__(self, entry: Round) -> None:
        if entry.round == self.round:
            raise self.error


@every
def test_a_run_is_logged_as_it_was(kind: type[Tracker], tmp_path: Path) -> None:
    dropout = {"rate": 0.5}
    with kind(tmp_path / "run") as tracker:
        run = fedmux.run(
            experiment(dropout=dropout, evaluation={"every": 2}), tmp_path / "run", observers=[tracker]
        )
    check(kind, run.path)
    found = KEPT[kind].read(run.path)
    assert {
        "accuracy/mean",
        "accuracy/minimum",
        "accuracy/variance",
        "phases/train",
        "dropped",
    } <= found.keys()
    each = {"accuracy", "loss", "jobs", "uploads", "upload_bytes", "gradient_steps", "step_size"}
    assert {f"task/{name}/{key}" for name in "ab" for key in each} <= found.keys()
    assert [step for step, _ in found["accuracy/mean"]] == [0, 2, 4]


@every
def test_a_tracker_without_with_is_whole_once_it_is_closed(kind: type[Tracker], tmp_path: Path) -> None:
    tracker = kind(tmp_path / "run")
    fedmux.run(experiment(), tmp_path / "run", observers=[tracker])
    tracker.close()
    check(kind, tmp_path / "run")


@every
@pytest.mark.parametrize("first", [True, False], ids=["after-the-tracker", "before-the-tracker"])
def test_a_run_that_failed_and_went_on_has_every_round_once(
    kind: type[Tracker], first: bool, tmp_path: Path
) -> None:
    """It goes back from round 3 to the checkpoint of round 2; the tracker has seen round 3, or has not."""
    folder, fails = tmp_path / "run", Fails(3, RuntimeError("lost"))
    with pytest.raises(RuntimeError, match="lost"), kind(folder) as tracker:
        fedmux.run(experiment(), folder, observers=[tracker, fails] if first else [fails, tracker])
    assert max(step for step, _ in KEPT[kind].read(folder)["seconds"]) == (3 if first else 2)
    with kind(folder) as tracker:
        fedmux.resume(folder, observers=[tracker])
    check(kind, folder)


@every
def test_a_tracker_that_comes_later_has_the_rounds_before(kind: type[Tracker], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(RuntimeError):
        fedmux.run(experiment(), folder, observers=[Fails(3, RuntimeError())])
    with kind(folder) as tracker:
        fedmux.resume(folder, observers=[tracker])
    check(kind, folder)


@every
def test_a_finished_run_is_logged_afterwards_and_only_once(kind: type[Tracker], tmp_path: Path) -> None:
    fedmux.run(experiment(), tmp_path / "run")
    for _ in range(2):
        with kind(tmp_path / "run"):
            pass
        check(kind, tmp_path / "run")
    final = KEPT[kind].read(tmp_path / "run").get("final/accuracy/mean", [])
    assert len(final) == KEPT[kind].finals


@every
def test_ctrl_c_leaves_whole_files(kind: type[Tracker], tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def interrupt(entry: Round) -> None:
        if entry.round == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted), kind(folder) as tracker:
        fedmux.run(experiment(), folder, observers=[tracker, interrupt])
    check(kind, folder)
    assert "final/rounds" not in KEPT[kind].read(folder)
    with kind(folder) as tracker:
        fedmux.resume(folder, observers=[tracker])
    check(kind, folder)


@every
def test_a_round_that_is_half_written_is_written_again(kind: type[Tracker], tmp_path: Path) -> None:
    """As `kill -9` leaves it."""
    folder = tmp_path / "run"
    tracker = kind(folder)
    with pytest.raises(RuntimeError):
        fedmux.run(experiment(), folder, observers=[tracker, Fails(3, RuntimeError())])
    tracker.end(None)
    KEPT[kind].break_off(tracker)
    with kind(folder) as again:
        fedmux.resume(folder, observers=[again])
    rounds = {key: [step for step, _ in values] for key, values in KEPT[kind].read(folder).items()}
    assert rounds["seconds"] == rounds["task/a/accuracy"] == [0, 1, 2, 3, 4]
    assert rounds["task/a/jobs"] == [1, 2, 3, 4]


def test_hyper_parameters_and_the_summary_are_logged(tmp_path: Path) -> None:
    with by_name("csv,mlflow,tensorboard", tmp_path / "run") as trackers:
        run = fedmux.run(experiment(), tmp_path / "run", observers=trackers)
    wanted = {key: str(value) for key, value in parameters(run.table).items()}
    assert wanted["task.a.learning_rate.initial"] == "0.1"
    assert wanted["population.clients"] == "12"

    def pairs(name: str) -> dict[str, str]:
        with (run.path / f"csv/{name}.csv").open(newline="") as file:
            return {row["key"]: row["value"] for row in csv.DictReader(file)}

    assert pairs("parameters") == wanted
    mean = run.summary["accuracy"]["mean"]
    assert float(pairs("summary")["accuracy.mean"]) == mean

    _, found = mlflow_run(run.path)
    assert found.data.params == wanted
    assert found.data.metrics["final/accuracy/mean"] == mean
    assert (found.info.status, found.info.run_name) == ("FINISHED", "run")

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    [last] = events.Scalars("final/accuracy/mean")
    assert (last.step, last.value) == (4, pytest.approx(mean))
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    start = HParamsPluginData.FromString(content).session_start_info
    assert start.hparams["population.clients"].number_value == 12


def test_an_interrupted_run_is_marked_in_mlflow(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), MLflow(tmp_path / "run") as tracker:
        fedmux.run(experiment(), tmp_path / "run", observers=[tracker, Fails(2, RuntimeError())])
    assert mlflow_run(tmp_path / "run")[1].info.status == "KILLED"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_lists_are_left_out_and_failures_counted() -> None:
    entry = Round(
        3,
        {"a": TaskRound(jobs=2, clients={"mean": 0.5})},
        allocation={"groups": [0, 1], "step": 2},
        events={"joined": [4]},
        failures=[Failure("1", "a", "train", "late", ""), Failure("2", "a", "train", "late", "")],
        seconds=1.5,
    )
    assert figures(entry) == {
        "task/a/jobs": 2,
        "task/a/clients/mean": 0.5,
        "allocation/step": 2,
        "failures": 2,
        "seconds": 1.5,
    }


def test_the_command_line_logs_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(small_experiment(rounds=4, checkpoint_every=2))
    command("run", "small.toml", "-o", "run", "--log", "csv, tensorboard", "--quiet", cwd=tmp_path).done()
    check(CSV, tmp_path / "run")
    check(TensorBoard, tmp_path / "run")
    before = (tmp_path / "run/csv/metrics.csv").read_bytes()
    command("resume", "run", "--log", "csv", "--quiet", cwd=tmp_path).done()
    assert (tmp_path / "run/csv/metrics.csv").read_bytes() == before


def test_ctrl_c_on_the_command_line_and_resume(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(small_experiment(rounds=6, checkpoint_every=2))
    conditions: dict[str, Any] = {"meet": signal.SIGINT, "at": 30}
    ended = command("run", "small.toml", "-o", "run", "--log", "csv", cwd=tmp_path, **conditions)
    assert ended.code == 130
    check(CSV, tmp_path / "run")
    command("resume", "run", "--log", "csv", "--quiet", cwd=tmp_path).done()
    check(CSV, tmp_path / "run")


@pytest.mark.parametrize("at", range(20, 80, 12))
def test_a_run_that_is_killed_anywhere_has_every_round_once(at: int, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(small_experiment(rounds=5, checkpoint_every=2))
    arguments = ("--log", "csv,tensorboard", "--quiet")
    conditions: dict[str, Any] = {"meet": signal.SIGKILL, "at": at}
    ended = command("run", "small.toml", "-o", "run", *arguments, cwd=tmp_path, **conditions)
    assert ended.code == -signal.SIGKILL
    command("resume", "run", *arguments, cwd=tmp_path).done()
    check(CSV, tmp_path / "run")
    check(TensorBoard, tmp_path / "run")


def test_no_tracker_opens_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *given: pytest.fail(f"connects to {given[1:]}"))
    with by_name("csv,mlflow,tensorboard", tmp_path / "run") as trackers:
        fedmux.run(experiment(), tmp_path / "run", observers=trackers)


def test_an_unknown_tracker_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(small_experiment(rounds=1, checkpoint_every=1))
    refusal = command("run", "small.toml", "-o", "run", "--log", "csv,tensorbord", cwd=tmp_path).refusal()
    refuses(refusal, '--log "tensorbord"', ("choose from", *TRACKERS))
    assert not (tmp_path / "run").exists()


def test_the_help_names_every_tracker() -> None:
    shown = get_args(Log)[1].help
    assert [name for name in TRACKERS if name not in shown] == []


def test_a_tracker_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in [name for name, kind in TRACKERS.items() if kind.package]:
        with pytest.raises(FedmuxError, match=rf'^tracker "{name}" needs {name}: .*fedmux\[{name}\]"$'):
            TRACKERS[name]("run")
    CSV("run")


def test_a_run_that_is_refused_leaves_the_other_run_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fedmux.run(experiment(), folder)
    before = sorted(folder.iterdir())
    with pytest.raises(FedmuxError, match="not empty"), by_name("csv,tensorboard", folder) as trackers:
        fedmux.run(experiment(), folder, observers=trackers)
    assert sorted(folder.iterdir()) == before


def test_a_comparison_is_not_logged_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    (tmp_path / "both/comparison.toml").write_text("")
    assert "--log is for a run" in command("resume", "both", "--log", "csv", cwd=tmp_path).refusal()


def test_wandb_keeps_an_offline_run(tmp_path: Path) -> None:
    import wandb

    folder = tmp_path / "run"
    with pytest.raises(RuntimeError), by_name("wandb", folder) as trackers:
        fedmux.run(experiment(), folder, observers=[*trackers, Fails(3, RuntimeError())])
    with by_name("wandb", folder) as trackers:
        fedmux.resume(folder, observers=trackers)
    wandb.teardown()  # waits for the process of wandb's that writes
    rounds = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        rounds += wandb_rounds(path)
    assert rounds == [0, 1, 2, 3, 4]
    state = json.loads((folder / "wandb/fedmux.json").read_text())
    assert (state["last"], state["ended"]) == (4, True)


def wandb_rounds(path: Path) -> list[int]:
    """Steps of an offline run that have an accuracy. wandb has no reader for its files, which are logs as
    LevelDB's: 7 bytes, then blocks of 32 KiB with parts of records (checksum, length, kind, data)."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record, steps = path.read_bytes(), 7, b"", []
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        if 2**15 - at % 2**15 < 7:  # no room for the head of a part: the block is padded
            at += 2**15 - at % 2**15
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            history = Record.FromString(record).history
            if "task/a/accuracy" in {item.key or "/".join(item.nested_key) for item in history.item}:
                steps.append(int(history.step.num))
            record = b""
    return steps
