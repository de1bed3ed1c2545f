"""The commands as a user types them: what they print, where they print it, and what they leave behind."""

import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from scipy import stats

from commands import fedmux, start, touch_number, wait_until
from conftest import files
from fedmux.cli import main
from fedmux.comparison.design import Design, parse_seeds
from fedmux.data.png import decode_png
from fedmux.data.sources import available
from fedmux.errors import FedmuxError
from fedmux.methods import registry
from fedmux.runs.compared import parse_axis

EXPERIMENT = """\
name = "small"
rounds = 3
method = "random"

[population]
clients = 12
rate = 0.3

[[task]]
name = "a"
data = "digits"
model = "mlp"
model_options = {hidden = [8]}
learning_rate = 0.1
local_epochs = 1
partition = {kind = "label-share", share = 0.5, sizes = [10, 20]}

[[task]]
name = "b"
data = "digits"
model = "mlp"
model_options = {hidden = [4]}
learning_rate = 0.2
local_epochs = 1
partition = {kind = "dirichlet", alpha = 0.5, sizes = [10, 20]}

[evaluation]
samples = 300

[output]
checkpoint_every = 1
"""
COMPARED = ["--methods", "random,full", "--seeds", "0-1", "--vary", "population.rate=0.3,0.6"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture(scope="session")
def finished_comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods x two seeds x two rates, trained once for all workers. To look at, not to change."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    here = root / "comparison"
    with (root / "comparison.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (here / "said").exists():
            here.mkdir()
            (here / "experiment.toml").write_text(EXPERIMENT)
            ended = fedmux("compare", "experiment.toml", *COMPARED, "-o", "c", cwd=here).done()
            (here / "said").write_text(json.dumps({"out": ended.out, "err": ended.err}))
    return here


@pytest.fixture
def comparison(finished_comparison: Path, tmp_path: Path) -> Path:
    """A copy of it, to do with as one likes."""
    shutil.copytree(finished_comparison, tmp_path / "copy")
    return tmp_path / "copy"


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Of each file: which it is and when it was last written."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def strictly(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def summaries(here: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """By label and seed, read from the runs themselves."""
    return {
        (f"{method} population.rate={rate}", seed): json.loads(
            (here / f"c/runs/{method}_population.rate={rate}-seed-{seed}/summary.json").read_text()
        )
        for method in ("random", "full")
        for rate in (0.3, 0.6)
        for seed in (0, 1)
    }


def assert_is_a_picture(path: Path) -> None:
    content = path.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    assert 1_000 < width < 3_000
    assert 500 < height < 2_000
    pixels = decode_png(content, str(path))[..., :3].reshape(-1, 3)
    white = (pixels == 255).all(1).mean()
    assert 0.3 < white < 0.99
    assert len(np.unique(pixels, axis=0)) > 20  # lines, letters and their edges


HEAVY = {
    "torch",
    "altair",
    "pandas",
    "jinja2",
    "starlette",
    "uvicorn",
    "pydantic",
    "numpy",
    "scipy",
    "sklearn",
    "vl_convert",
    "safetensors",
}


def test_help_of_every_command_loads_nothing_heavy():
    script = f"""
import sys
from fedmux.cli import app, main
commands = [[], *([c.name or c.callback.__name__] for c in app.registered_commands)]
commands += [["data"], ["data", "list"], ["data", "get"], ["data", "add"]]
for command in commands:
    sys.argv = ["fedmux", *command, "--help"]
    main()
print(len(commands), sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    number, heavy = ended.stderr.split(maxsplit=1)
    assert heavy.strip() == "[]"
    assert int(number) >= 12
    assert ended.stdout.count("Usage: ") == int(number)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has 1 GiB."),
        RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"),
        RuntimeError("another"),
    ],
)
def test_a_full_gpu_is_one_line_and_other_errors_are_not_hidden(monkeypatch, capsys, error):
    def full() -> None:
        raise error

    full_gpu = "memory" in str(error)
    monkeypatch.setattr("fedmux.cli._app", full)
    monkeypatch.setattr("fedmux.importing._is_users_own", lambda file: False)  # this file is not a user's
    with pytest.raises(SystemExit if full_gpu else RuntimeError) as ended:
        main()
    if full_gpu:
        assert ended.value.code == 2
        told = capsys.readouterr().err
        assert told.startswith("fedmux: CUDA") and told.count("\n") == 1
        assert "out of memory: others may use the GPU too" in told and "`fedmux resume RUN`" in told


@pytest.mark.parametrize("arguments", [[], ["--help"], ["data"]])
def test_help_goes_to_stdout(here, arguments):
    ended = fedmux(*arguments, cwd=here)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.lstrip().startswith("Usage: ")


def test_the_installed_command_and_the_module_are_the_same():
    script = Path(sys.executable).with_name("fedmux")
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in ([str(script), "run", "--help"], [sys.executable, "-m", "fedmux", "run", "--help"])
    ]
    assert outputs[0] == outputs[1]
    assert "EXPERIMENT" in outputs[0]


def test_the_starter_file_is_written_trained_listed_and_shown(tmp_path):
    said = fedmux("init", cwd=tmp_path).done().out
    assert "fedmux run experiment.toml" in said
    ended = fedmux("run", "experiment.toml", "--set", "rounds=2", cwd=tmp_path).done()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("first-")
    for word in ("clothes", "digits", "mean", f"runs/{folder.name}", "accuracy.png"):
        assert word in ended.out
    assert_is_a_picture(folder / "accuracy.png")
    assert "round 2/2" in ended.err
    assert folder.name in fedmux("list", cwd=tmp_path).done().out
    shown = fedmux("show", f"runs/{folder.name}", cwd=tmp_path).done().out
    assert ended.out.startswith(shown)  # the same table


def test_runs_that_begin_in_the_same_second_are_not_mixed_up(here):
    """Each gets a folder of its own, or is refused if another was quicker to take it."""
    processes = [start("run", "experiment.toml", "-q", "--set", "rounds=1", cwd=here) for _ in range(4)]
    ended = [process.wait() for process in processes]
    for refused in (one for one in ended if one.code != 0):
        assert "runs/small-" in refused.refusal()
    finished = list((here / "runs").glob("*/summary.json"))
    assert len(finished) == sum(one.code == 0 for one in ended) > 0
    assert len({json.dumps(sorted(files(path.parent).items()), default=repr) for path in finished}) == 1


def test_json_is_all_that_a_run_prints_when_asked_for(here):
    ended = fedmux("run", "experiment.toml", "-o", "run", "--json", cwd=here).done()
    assert ended.err == ""
    summary = strictly((here / "run" / "summary.json").read_text())
    assert strictly(ended.out) == {**summary, "folder": "run"}
    assert summary["rounds"] == 3
    assert set(summary["tasks"]) == {"a", "b"}


def test_quiet_prints_nothing_and_changes_nothing(here):
    ended = fedmux("run", "experiment.toml", "-o", "quiet", "--quiet", cwd=here)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    fedmux("run", "experiment.toml", "-o", "loud", cwd=here).done()
    assert files(here / "quiet") == files(here / "loud")


def test_quiet_and_json_together_print_json(here):
    assert strictly(fedmux("run", "experiment.toml", "-o", "run", "-q", "--json", cwd=here).done().out)


def test_the_table_of_a_run_holds_its_figures(here):
    out = fedmux(
        "run", "experiment.toml", "-o", "run", "--set", "evaluation.thresholds=[0.01,0.99]", cwd=here
    ).out
    summary = json.loads((here / "run" / "summary.json").read_text())
    lines = {line.split()[1]: line for line in out.splitlines() if line.startswith("│")}
    for name in ("a", "b"):
        assert f"{summary['tasks'][name]['accuracy']:.1%}" in lines[name]
        assert f"{summary['tasks'][name]['last_loss']:.3f}" in lines[name]
        assert lines[name].split()[-4:] == ["│", "0", "-", "│"]  # reached before training, and never
    assert f"{summary['accuracy']['mean']:.1%}" in lines["mean"]


def test_overrides_reach_the_run(here):
    changes = ["--set", "rounds=1", "--set", "seed=7", "--set", "task.b.batch_size=5", "--set", "method=full"]
    fedmux("run", "experiment.toml", "-q", "-o", "run", *changes, cwd=here).done()
    summary = json.loads((here / "run" / "summary.json").read_text())
    assert (summary["rounds"], summary["seed"], summary["method"]) == (1, 7, "full")
    assert "batch_size = 5" in (here / "run" / "experiment.toml").read_text()


def test_methods_are_listed_with_options_and_papers(here):
    rows = strictly(fedmux("methods", "--json", cwd=here).done().out)
    assert [row["name"] for row in rows] == list(registry())
    random = next(row for row in rows if row["name"] == "random")
    assert random["options"]["participation"] == "processors"
    out = fedmux("methods", cwd=here).done().out
    for row in rows:
        assert row["name"] in out
    assert "[P1]" in out


def test_data_sets_are_listed(here):
    ended = fedmux("data", "list", "--json", cwd=here).done()
    rows = strictly(ended.out)
    assert [row["name"] for row in rows] == [row.name for row in available()]
    assert {"digits", "fashion-mnist-sample"} <= {row["name"] for row in rows if row["where"] == "embedded"}
    out = fedmux("data", "list", cwd=here).done().out
    for row in rows:
        assert row["name"] in out


def test_runs_are_listed_with_their_state_and_what_is_no_run_is_left_out(here):
    fedmux("run", "experiment.toml", "-q", "-o", "runs/whole", cwd=here).done()
    time.sleep(0.01)  # newest last, by the clock of the file system
    dry = ("run", "experiment.toml", "-q", "-o", "dry")
    step = touch_number("rename dry/checkpoints/.round-000001", *dry, cwd=here)
    (here / "runs" / "part").mkdir()
    part = ("run", "experiment.toml", "-q", "-o", "runs/part")
    assert fedmux(*part, cwd=here, meet=signal.SIGINT, at=step).code == 130
    (here / "runs" / "notes").mkdir()
    shutil.copy(here / "experiment.toml", here / "runs" / "notes" / "experiment.toml")
    rows = strictly(fedmux("list", "--json", cwd=here).done().out)
    assert [(row["run"], row["state"]) for row in rows] == [
        ("runs/whole", "finished"),
        ("runs/part", "interrupted"),
    ]
    assert rows[0]["rounds"] == "3/3"
    assert rows[1]["rounds"] == "2/3"
    accuracy = json.loads((here / "runs/whole/summary.json").read_text())["accuracy"]["mean"]
    assert rows[0]["accuracy"] == f"{accuracy:.1%}"
    out = fedmux("list", cwd=here).done().out
    assert "runs/whole" in out
    assert "interrupted: stopped by Ctrl-C" in out.replace("│ ", "")
    shown = fedmux("show", "runs/part", cwd=here).done().out
    assert "runs/part: interrupted after round 2 of 3: stopped by Ctrl-C" in shown
    assert "fedmux resume runs/part" in shown
    assert strictly(fedmux("show", "runs/part", "--json", cwd=here).done().out)["state"] == "interrupted"
    summary = json.loads((here / "runs/whole/summary.json").read_text())
    assert strictly(fedmux("show", "runs/whole", "--json", cwd=here).done().out) == summary


@pytest.mark.parametrize("arguments", [["methods"], ["data", "list", "--json"], []])
def test_a_reader_that_goes_away_is_no_reason_for_a_traceback(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "fedmux", *arguments], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert ended.stderr == b""
    assert ended.returncode in (0, 1)


def test_a_comparison_runs_every_cell_and_says_so(finished_comparison):
    said = json.loads((finished_comparison / "said").read_text())
    cells = {f"{label.replace(' ', '_')}-seed-{seed}" for label, seed in summaries(finished_comparison)}
    assert len(cells) == 8
    for cell in cells:
        assert f"{cell}: accuracy" in said["err"]
    assert "comparison: c" in said["out"]
    assert_is_a_picture(finished_comparison / "c" / "accuracy.png")
    assert (finished_comparison / "c" / "report.html").stat().st_size > 500_000
    experiment = finished_comparison / "c/experiments/random_population.rate=0.6-seed-1.toml"
    run = finished_comparison / "c/runs/random_population.rate=0.6-seed-1/experiment.toml"
    assert experiment.read_text() == run.read_text()
    assert "rate = 0.6" in run.read_text()


def test_a_cell_of_a_comparison_is_the_run_that_one_would_get_alone(finished_comparison, here):
    changes = ["--set", "seed=1", "--set", "population.rate=0.6"]
    fedmux("run", "experiment.toml", "-q", "-o", "alone", *changes, cwd=here).done()
    cell = finished_comparison / "c/runs/random_population.rate=0.6-seed-1"
    assert files(here / "alone") == files(cell)


def test_the_table_of_a_comparison_equals_a_computation_by_hand(finished_comparison):
    rows = strictly((finished_comparison / "c" / "results.json").read_text())
    runs = summaries(finished_comparison)
    assert [row["label"] for row in rows] == [
        "random population.rate=0.3",
        "random population.rate=0.6",
        "full population.rate=0.3",
        "full population.rate=0.6",
    ]
    for row in rows:
        own = np.array([runs[row["label"], seed]["accuracy"]["mean"] for seed in (0, 1)])
        against = row["label"].replace("random", "full")  # the baseline where all else is equal
        base = np.array([runs[against, seed]["accuracy"]["mean"] for seed in (0, 1)])
        assert (row["against"], row["baseline"]) == (against, row["method"] == "full")
        assert row["seeds"] == [0, 1]
        assert row["accuracy"] == pytest.approx(own.mean(), rel=1e-12)
        assert row["accuracy_std"] == pytest.approx(np.sqrt(((own - own.mean()) ** 2).sum() / 1), rel=1e-12)
        assert row["relative"] == pytest.approx((own / base).mean(), rel=1e-12)
        assert row["difference"] == pytest.approx((own - base).mean(), abs=1e-15)
        worst = [runs[row["label"], seed]["accuracy"]["minimum"] for seed in (0, 1)]
        assert row["minimum"] == pytest.approx(np.mean(worst), rel=1e-12)
        uploads = [runs[row["label"], seed]["totals"]["uploads"] / 3 for seed in (0, 1)]
        assert row["uploads"] == pytest.approx(np.mean(uploads), rel=1e-12)
        if not row["baseline"]:
            interval = stats.ttest_rel(own, base).confidence_interval(0.95)
            assert row["difference"] - row["difference_half_width"] == pytest.approx(interval.low, rel=1e-9)
            assert row["difference"] + row["difference_half_width"] == pytest.approx(interval.high, rel=1e-9)


def test_the_printed_table_shows_the_results(finished_comparison):
    out = json.loads((finished_comparison / "said").read_text())["out"]
    rows = strictly((finished_comparison / "c" / "results.json").read_text())
    lines = [line for line in out.splitlines() if line.startswith("│")]
    assert len(lines) == 4
    assert "vs" in out
    for row, line in zip(sorted(rows, key=lambda row: -row["accuracy"]), lines):
        label, accuracy, worst, relative, points, uploads, steps = (
            cell.strip() for cell in line.split("│")[1:-1]
        )
        assert label == row["label"]
        assert accuracy == f"{row['accuracy']:.1%} ± {row['accuracy_std']:.1%}"
        assert worst == f"{row['minimum']:.1%}"
        assert relative == f"{row['relative']:.3f}"
        assert uploads == f"{row['uploads']:.1f}"
        assert steps == f"{row['gradient_steps']:.0f}"
        difference = f"{100 * row['difference']:+.1f} ± {100 * row['difference_half_width']:.1f}"
        assert points == ("-" if row["baseline"] else difference)


def test_comparing_again_runs_nothing_again(comparison):
    before = written(comparison / "c" / "runs")
    ended = fedmux("compare", "experiment.toml", *COMPARED, "-o", "c", cwd=comparison).done()
    assert "8 of 8 runs are done already" in ended.err
    assert written(comparison / "c" / "runs") == before
    assert ended.out == json.loads((comparison / "said").read_text())["out"]
    again = fedmux("compare", "experiment.toml", *COMPARED, "-o", "c", "--json", cwd=comparison).done()
    assert again.err == ""
    assert strictly(again.out) == strictly((comparison / "c" / "results.json").read_text())
    quiet = fedmux("resume", "c", "--quiet", cwd=comparison).done()
    assert (quiet.out, quiet.err) == ("", "")


def test_another_comparison_does_not_go_into_the_same_folder(comparison):
    before = written(comparison / "c")
    line = fedmux("compare", "experiment.toml", "--methods", "full", "-o", "c", cwd=comparison).refusal()
    assert "c: holds another comparison" in line
    assert written(comparison / "c") == before


def test_a_comparison_gains_methods_and_seeds(here):
    fedmux(
        "compare", "experiment.toml", "--methods", "random", "--seeds", "0", "-q", "-o", "c", cwd=here
    ).done()
    before = written(here / "c" / "runs")
    more = ("--methods", "full", "--seeds", "1", "-o", "c", "--json")
    rows = strictly(fedmux("compare", "experiment.toml", *more, cwd=here).done().out)
    assert [(row["label"], row["seeds"]) for row in rows] == [("random", [0]), ("full", [1])]
    after = written(here / "c" / "runs")
    assert {name: after[name] for name in before} == before
    plan = tomllib.loads((here / "c" / "comparison.toml").read_text())
    assert (plan["methods"], plan["seeds"]) == (["random", "full"], [0, 1])
    assert not (here / "c" / "runs" / "full-seed-0").exists()  # nobody asked for it yet
    assert strictly(fedmux("show", "c", "--json", cwd=here).done().out) == rows
    other = ("--methods", "random", "--set", "rounds=2", "-o", "c")
    assert "holds another comparison" in fedmux("compare", "experiment.toml", *other, cwd=here).refusal()


def test_cells_that_were_killed_are_resumed_and_the_others_are_left_alone(comparison, finished_comparison):
    """One was killed in the middle of its training, one before it had even begun."""
    runs = comparison / "c" / "runs"
    cells = {
        "random_population.rate=0.3-seed-1": "rename dry/checkpoints/.round-000002",
        "full_population.rate=0.6-seed-0": "rename dry/.experiment.toml",
    }
    for cell, text in cells.items():
        run = ("run", f"c/experiments/{cell}.toml", "-q", "-o")
        step = touch_number(text, *run, "dry", cwd=comparison)
        shutil.rmtree(comparison / "dry")
        shutil.rmtree(runs / cell)
        ended = fedmux(*run, runs / cell, cwd=comparison, meet=signal.SIGKILL, at=step)
        assert ended.code == -signal.SIGKILL
    assert [(runs / cell / "experiment.toml").exists() for cell in cells] == [True, False]
    before = written(runs)
    ended = fedmux("resume", "c", cwd=comparison).done()
    assert "6 of 8 runs are done already" in ended.err
    after = written(runs)
    others = {name for name in before if not name.startswith(tuple(cells))}
    assert len(others) > 50
    assert {name: after[name] for name in others} == {name: before[name] for name in others}
    for cell in cells:
        assert files(runs / cell) == files(finished_comparison / "c" / "runs" / cell)


def test_a_cell_that_fails_is_told_and_the_others_are_kept(here):
    ended = fedmux(
        *("compare", "experiment.toml", "--vary", "task.learning_rate=0.1,1e30", "-o", "c", "--json"),
        cwd=here,
    )
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert line.startswith("fedmux: random_task.learning_rate=1e30-seed-0: ")
    assert "has diverged" in line
    rows = {row["label"]: row for row in strictly(ended.out)}
    assert rows["random task.learning_rate=1e30"]["diverged"] == {"seed 0": ["a", "b"]}
    assert rows["random task.learning_rate=0.1"]["diverged"] == {}
    assert (here / "c/runs/random_task.learning_rate=0.1-seed-0/summary.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_comparison_that_is_stopped_stops_its_runs_and_goes_on_later(here, number):
    changes = ["--set", "rounds=200", "--set", "evaluation.every=100"]
    process = start("compare", "experiment.toml", *changes, "--parallel", "1", "-q", "-o", "c", cwd=here)
    metrics = here / "c/runs/random-seed-0/metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.stat().st_size)
    process.send(number)
    ended = process.wait()
    assert (ended.code, ended.out) == (130, "")
    assert ended.err == "fedmux: stopped; `fedmux resume c` continues\n"
    state = strictly(fedmux("show", "c/runs/random-seed-0", "--json", cwd=here).done().out)
    assert (state["state"], state["reason"]) == ("interrupted", "stopped by Ctrl-C or SIGTERM")
    fedmux("resume", "c/runs/random-seed-0", "-q", cwd=here).done()  # nobody holds it any more
    fedmux("resume", "c", "-q", cwd=here).done()
    assert json.loads((here / "c/results.json").read_text())[0]["seeds"] == [0]


def handmade(folder: Path, accuracy: dict[str, dict[int, float]], baseline: str | None = None) -> list[Any]:
    """Results of a comparison whose runs ended so, by method and seed."""
    from conftest import table

    seeds = sorted({seed for runs in accuracy.values() for seed in runs})
    design = Design.make(table(), "by hand", methods=list(accuracy), seeds=seeds, baseline=baseline)
    comparison = design.create(folder)
    for cell in comparison.cells:
        value = accuracy[cell.label].get(cell.seed)
        if value is not None:
            run = comparison.folder(cell)
            run.mkdir(parents=True)
            (run / "experiment.toml").touch()
            (run / "environment.json").touch()
            costs = dict.fromkeys(("uploads", "upload_bytes", "gradient_steps", "forward_passes"), 20)
            summary = {
                "final_rounds": 10,
                "accuracy": {"mean": value, "minimum": value / 2},
                "tasks": {"a": {"accuracy": value}, "b": {"accuracy": value}},
                "totals": costs,
                "rounds": 4,
                "seconds": 1.5,
            }
            (run / "summary.json").write_text(json.dumps(summary))
    comparison.results()
    return strictly((folder / "results.json").read_text())


def test_only_seeds_that_both_finished_are_paired(tmp_path):
    full = {0: 0.8, 1: 0.7, 2: 0.9, 3: 0.6}
    random = {0: 0.5, 1: 0.6, 2: 0.55}
    first, second = handmade(tmp_path / "c", {"random": random, "full": full})
    interval = stats.ttest_rel([0.5, 0.6, 0.55], [0.8, 0.7, 0.9]).confidence_interval(0.95)
    assert first["seeds"] == [0, 1, 2]
    assert first["difference"] == pytest.approx((interval.low + interval.high) / 2)
    assert first["difference_half_width"] == pytest.approx((interval.high - interval.low) / 2)
    assert first["relative"] == pytest.approx((0.5 / 0.8 + 0.6 / 0.7 + 0.55 / 0.9) / 3)
    assert second["accuracy"] == pytest.approx(0.75)
    assert (second["difference"], second["relative"]) == (0, 1)


def test_scores_below_zero_and_zero_have_no_ratio(tmp_path):
    rows = handmade(tmp_path / "c", {"random": {0: -2.0, 1: 0.5}, "full": {0: -1.0, 1: 0.0}})
    assert [row["relative"] for row in rows] == [None, None]
    assert rows[0]["difference"] == pytest.approx(-0.25)


def test_a_baseline_that_failed_leaves_the_others_without_comparison(tmp_path):
    (row,) = handmade(tmp_path / "c", {"random": {0: 0.5}, "full": {}})
    assert (row["relative"], row["difference"], row["difference_half_width"]) == (None, None, None)


def test_one_seed_gives_a_difference_without_an_interval(tmp_path):
    first, _ = handmade(tmp_path / "c", {"random": {0: 0.5}, "sequential": {0: 0.4}}, baseline="sequential")
    assert first["difference"] == pytest.approx(0.1)
    assert (first["difference_half_width"], first["accuracy_std"]) == (None, None)


def test_the_methods_of_the_file_may_have_labels_and_options_of_their_own(here):
    from fedmux.toml import read_toml

    with (here / "experiment.toml").open("a") as file:
        file.write(
            '[compare]\nseeds = [3]\nbaseline = "by processor [ours]"\nmethods = ["full", '
            '{name = "random", label = "by processor [ours]"}, '
            '{name = "random", label = "by client", participation = "clients"}]\n'
        )
    design = Design.make(read_toml(here / "experiment.toml"), "experiment.toml", vary=["rounds=1,2"])
    cells = design.cells
    assert [cell.label for cell in cells][:3] == [
        "full rounds=1",
        "full rounds=2",
        "by processor [ours] rounds=1",
    ]
    assert design.experiments()[cells[5].name]["method"] == {"name": "random", "participation": "clients"}
    assert design.references()["by client rounds=2"] == "by processor [ours] rounds=2"
    assert {cell.seed for cell in cells} == {3}


def test_one_method_over_a_varied_key_is_set_against_its_first_value(here):
    from conftest import table

    design = Design.make(table(), "file", vary=["rounds=1,2,3"])
    assert set(design.references().values()) == {"random rounds=1"}


def test_brackets_in_a_label_are_printed_as_they_are(capsys):
    from fedmux.console.tables import output, simple_table

    output.print(simple_table(["run"], [["random [bold]"]]))
    assert "random [bold]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", [3]), ("0-4", [0, 1, 2, 3, 4]), ("0,2,5-7", [0, 2, 5, 6, 7]), (" 1 , 2", [1, 2])],
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rounds=1,2", ["1", "2"]),
        ("task.partition.sizes=[1,2],[3,4]", ["[1,2]", "[3,4]"]),
        ("population.processors={all=0.5,one=0.5},1", ["{all=0.5,one=0.5}", "1"]),
        ('task.data="a,b",digits', ['"a,b"', "digits"]),
    ],
)
def test_an_axis_is_divided_at_its_own_commas_only(text, values):
    assert parse_axis(text) == (text.partition("=")[0], values)


def test_a_comparison_that_makes_no_sense_starts_nothing(tmp_path):
    from conftest import table

    with pytest.raises(FedmuxError, match="rounds"):
        Design.make(table(), "file", vary=["rounds=2,0"]).create(tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_comparison_is_shown_again_from_its_folder(comparison):
    rows = json.loads((comparison / "c" / "results.json").read_text())
    assert json.loads(fedmux("show", "c", "--json", cwd=comparison).done().out) == rows
    shown = fedmux("show", "c", cwd=comparison).done().out
    assert all(row["method"] in shown for row in rows) and "points" in shown


def test_a_comparison_is_shown_without_torch(comparison):
    """Also one of an older version, whose comparison.toml does not list its cells."""
    script = """
import sys
from fedmux.cli import main
sys.argv = ["fedmux", "show", "c", "--json"]
main()
print(sorted({"torch", "pydantic"} & set(sys.modules)), file=sys.stderr)
"""
    plan = comparison / "c" / "comparison.toml"
    rows = json.loads((comparison / "c" / "results.json").read_text())
    whole = tomllib.loads(plan.read_text())
    for table in (whole, {key: value for key, value in whole.items() if key != "cells"}):
        plan.write_text(tomli_w.dumps(table))
        ended = subprocess.run([sys.executable, "-c", script], cwd=comparison, capture_output=True, text=True)
        assert (json.loads(ended.stdout), ended.stderr) == (rows, "[]\n")


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("run", "Experiment file (TOML)."),
        ("resume", "Folder of a run or a comparison."),
        ("list", "Folder to look in."),
    ],
)
def test_arguments_have_their_help(here, verb, said):
    assert said in " ".join(fedmux(verb, "--help", cwd=here).done().out.split())
