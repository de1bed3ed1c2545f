"""One reader: strict for `Run`, backwards for lists; runs of a comparison by name; all without torch."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import fedmux
from conftest import table
from fedmux.comparison.design import Design
from fedmux.errors import FedmuxError
from fedmux.experiment.mistakes import validated
from fedmux.runs.compared import cells, parse_axis
from fedmux.runs.layout import COMPARISON
from fedmux.runs.reading import BLOCK, newest_rounds, read_environment, read_jobs, read_population


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reading") / "runs" / "run"
    fedmux.run(validated(fedmux.Experiment, table(evaluation={"every": 4}), "test"), folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_a_run_has_all_that_was_recorded(made: Path) -> None:
    run = fedmux.Run(made)
    lines = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    assert [entry.line() for entry in run.metrics] == lines
    assert run.metrics[0].accuracy is not None
    assert run.finished
    assert run.summary["accuracy"]["mean"] == run.metrics[-1].accuracy.mean  # type: ignore[union-attr]
    assert run.allocation["round"].max() == 4
    assert run.model("a")
    environment = read_environment(made)
    assert environment is not None
    assert environment["packages"].keys() >= {"torch", "numpy"}


def test_damage_is_one_line_that_names_the_file(run: Path) -> None:
    (run / "summary.json").write_text("{")
    with pytest.raises(FedmuxError, match=r"run/summary\.json: cannot be read \(Expecting"):
        _ = fedmux.Run(run).summary
    (run / "summary.json").unlink()
    with pytest.raises(FedmuxError, match=r"not finished, .*; `fedmux resume"):
        _ = fedmux.Run(run).summary
    log = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join([*log[:3], log[3][:-20]]))
    assert [entry.round for entry in fedmux.Run(run).metrics] == [0, 1, 2]  # the last is being written
    (run / "metrics.jsonl").write_bytes(b"".join([*log[:2], b"nonsense\n", *log[2:]]))
    with pytest.raises(FedmuxError, match=r"metrics\.jsonl: line 3 is not an entry of a round; restore"):
        _ = fedmux.Run(run).metrics
    (run / "population.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(FedmuxError, match=r"population\.npz: cannot be read"):
        read_population(run)
    (run / "experiment.toml").write_text("= 3")
    with pytest.raises(FedmuxError, match=r"experiment\.toml: not valid TOML"):
        _ = fedmux.Run(run).table


def test_the_last_jobs_are_the_last_ones(run: Path) -> None:
    jobs = read_jobs(run)
    with (run / "allocation.bin").open("ab") as file:
        file.write(b"half")
    assert np.array_equal(read_jobs(run), jobs)
    assert np.array_equal(read_jobs(run, last=5), jobs[-5:])
    assert np.array_equal(read_jobs(run, last=10**6), jobs)
    (run / "allocation.bin").unlink()
    assert len(read_jobs(run)) == 0


@pytest.mark.parametrize("filling", [0, 3, BLOCK // 3, 3 * BLOCK])
def test_the_newest_rounds_come_backwards_whatever_their_length(run: Path, filling: int) -> None:
    tables = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines = [json.dumps({**one, "unknown": "x" * filling}) for one in tables]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n" + lines[0][:30])
    assert list(newest_rounds(run)) == fedmux.Run(run).metrics[::-1]
    (run / "metrics.jsonl").write_bytes(b"")
    assert list(newest_rounds(run)) == []
    (run / "metrics.jsonl").unlink()
    assert list(newest_rounds(run)) == []


def test_a_comparison_names_its_runs_as_its_design_does(tmp_path: Path) -> None:
    methods = ["round-robin", {"name": "random", "label": "by chance!"}, {"name": "mmfl-lvr", "power": 2}]
    vary = ["population.jobs=4,6", "evaluation.every=1,2"]
    design = Design.make({**table(), "compare": {"methods": methods[:2]}}, "test", seeds=[0, 3], vary=vary)
    (tmp_path / COMPARISON).write_text(tomli_w.dumps(design.plan()))
    assert cells(tmp_path) == design.cells
    older = {key: value for key, value in design.plan().items() if key != "cells"}
    (tmp_path / COMPARISON).write_text(tomli_w.dumps(older))
    assert cells(tmp_path) == design.cells
    assert parse_axis("a.b=[1,2],3") == ("a.b", ["[1,2]", "3"])


@pytest.mark.parametrize(
    "plan", ["", "methods = 3\nvary = []\nseeds = [0]", "methods = [3]\nvary = []\nseeds = [0]"]
)
def test_a_damaged_plan_is_told(tmp_path: Path, plan: str) -> None:
    (tmp_path / COMPARISON).write_text(plan)
    with pytest.raises(FedmuxError, match=r"comparison\.toml is damaged"):
        cells(tmp_path)


HEAVY = ("torch", "sklearn", "scipy", "pydantic")
COMMANDS = {
    "list": "main(['list', runs])",
    "list --json": "main(['list', runs, '--json'])",
    "show": "main(['show', run])",
    "show --json": "main(['show', run, '--json'])",
    "report": "main(['report', run, '-o', runs + '/report.html', '--quiet'])",
    "ui": "from fedmux.ui.server import Server, listen; Server(Path(runs), listen(0)).listener.close()",
    "readers": "import fedmux.runs.reading, fedmux.runs.history, fedmux.runs.frames, fedmux.runs.trackers; "
    "fedmux.load(run).summary",
    "pages": "import fedmux.report.page, fedmux.ui.app",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_only_reads_does_not_load_torch(made: Path, command: str) -> None:
    script = f"""
import sys
from pathlib import Path
import fedmux
from fedmux.cli import app
main = lambda arguments: app(arguments, standalone_mode=False)
run, runs = {str(made)!r}, {str(made.parent)!r}
{COMMANDS[command]}
assert not {{*{HEAVY!r}}} & set(sys.modules), {{*{HEAVY!r}}} & set(sys.modules)
assert "pandas" not in sys.modules or {command!r} == "report"
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
