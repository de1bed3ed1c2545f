"""What goes wrong at the end hides nothing that went wrong before."""

import json
import shutil
from pathlib import Path

import fedmux
from commands import fedmux as command
from conftest import table
from fedmux.comparison.design import Design
from fedmux.comparison.folder import experiment_file

WARNING = 'task "a" diverged in round 1: its loss is not finite'


def diverge(run: Path) -> None:
    """Its summary as if a task had diverged."""
    summary = json.loads((run / "summary.json").read_text())
    told = {"round": 1, "reason": "its loss is not finite", "model": 0}
    (run / "summary.json").write_text(json.dumps({**summary, "diverged": {"a": told}}))


def damage(run: Path) -> None:
    """Its second line."""
    first, _, *rest = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([first, "garbage\n", *rest]))


def test_a_damaged_log_in_a_comparison_hides_no_failure_and_no_divergence(tmp_path: Path) -> None:
    comparison = Design.make(table(rounds=2), "test", seeds=[0, 1, 2]).create(tmp_path / "c")
    damaged, diverged, failing = comparison.cells
    for cell in (damaged, diverged):
        fedmux.run(fedmux.Experiment.read(experiment_file(comparison.path, cell)), comparison.folder(cell))
    damage(comparison.folder(damaged))
    diverge(comparison.folder(diverged))
    comparison.folder(failing).write_text("in its way")
    ended = command("resume", "c", cwd=tmp_path)
    assert ended.code == 2 and (tmp_path / "c" / "report.html").stat().st_size > 500_000
    told = ended.err.splitlines()
    warnings = [line for line in told if line.startswith("warning: ")]
    assert told[-1].startswith(f"fedmux: {failing.name}: ") and len(warnings) == 2
    assert f"{damaged.name}/metrics.jsonl: line 2" in warnings[0]
    assert f"{diverged.name}: {WARNING}" in warnings[1]

    (comparison.folder(damaged) / "summary.json").write_text("[")  # then there is no table either
    comparison.folder(failing).unlink()
    shutil.copytree(comparison.folder(diverged), comparison.folder(failing))
    ended = command("resume", "c", cwd=tmp_path)
    assert ended.code == 2 and ended.err.count("fedmux: ") == ended.err.count("summary.json") == 1


def test_a_picture_that_cannot_be_drawn_hides_no_divergence(tmp_path: Path) -> None:
    run = fedmux.run(fedmux.Experiment(**table(rounds=2)), tmp_path / "run").path
    diverge(run)
    damage(run)
    ended = command("resume", "run", cwd=tmp_path)
    assert ended.code == 2
    warning, failure = ended.err.splitlines()
    assert warning.startswith(f"warning: {WARNING}")
    assert failure.startswith("fedmux: run/metrics.jsonl: line 2")
