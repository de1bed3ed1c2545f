"""Presets in their smallest version, and `fedmux` in this process; their fixtures are for all tests."""

import fcntl
import functools
import os
import signal
from pathlib import Path

import pytest

import fedmux as package
from fedmux import cli
from fedmux.data.sets.fashion_mnist_sample import SAMPLE
from fedmux.experiment import Experiment
from fedmux.reproduce.planning import Choice
from fedmux.reproduce.preset import find
from fedmux.reproduce.reproduction import Reproduction
from fedmux.training import assembly

FEWER = {
    "table1-3tasks": ["population.clients=16"],
    "fig2-processors": ["population.clients=16"],
    "table1-5tasks": ["population.clients=16"],
    "poster": ["population.clients=16"],
    "fair-exp1": ["population.clients=24"],
    "fair-exp2": ["population.clients=8"],
    "fair-exp3": ["population.rate=0.05"],
    "fair-exp4": ["population.clients=8"],
    "fair-fig4": ["population.clients=24"],
    "group-new-tasks": ["rounds=6"],  # so that both tasks have joined
}
load = functools.cache(assembly.load)


def overrides(name: str) -> list[str]:
    """What makes the small version of a preset tiny. The sample is on every machine, and unpacked quickly."""
    source = find(name).source
    everywhere = min((variant.tasks for variant in source.variants if variant.tasks), default=None)
    tasks = [task for task in source.experiment["task"][:everywhere] if task["data"] == "fashion-mnist"]
    return [
        *("rounds=2", "task.local_epochs=1", "evaluation.samples=60"),
        *(f"task.{task['name']}.data={SAMPLE}" for task in tasks),
        *FEWER.get(source.name, []),
    ]


def setting(changes: list[str]) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@pytest.fixture
def command(monkeypatch, capsys):
    """`fedmux ARGUMENTS` in this process, which need not import altair again: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fedmux", *map(str, arguments)])
        before = signal.getsignal(signal.SIGTERM)
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            signal.signal(signal.SIGTERM, before)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def trained(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """A preset's tiny version, trained here as its processes would; runs are shared by all workers."""
    root = tmp_path_factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "reproduced"
    root.mkdir(exist_ok=True)
    monkeypatch.setattr(assembly, "load", load)
    locks = []

    def train(name: str) -> tuple[Path, Reproduction]:
        locks.append((root / f"{find(name).source.name}.lock").open("w"))
        fcntl.flock(locks[-1], fcntl.LOCK_EX)
        work = Reproduction.prepare(find(name), root, Choice(quick=True, overrides=overrides(name)))
        for part in work.parts:
            for cell in part.comparison.asked:
                if not part.comparison.finished(cell):
                    experiment = Experiment.model_validate(part.design.experiments()[cell.name])
                    package.run(experiment, part.comparison.folder(cell))
        return root, work

    yield train
    for lock in locks:
        lock.close()
