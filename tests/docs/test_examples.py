"""The example files run as they are, in fewer rounds."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import fedmux
from fedmux.experiment import Experiment
from fedmux.training.assembly import assemble

EXAMPLES = Path(__file__).parents[2] / "examples"


def shortened(name: str, folder: Path, changes: dict[str, str]) -> Path:
    text = (EXAMPLES / name).read_text()
    for old, new in (changes | {"local_epochs = 2": "local_epochs = 1"}).items():
        assert old in text
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("method", ["mmfl-group", "random", "round-robin"])
def test_clients_join_from_one_file(method, tmp_path):
    changes = {"rounds = 60": "rounds = 8", "mean_wait = 4.0": "mean_wait = 0.5"}
    path = shortened("new-clients.toml", tmp_path, changes)
    run = fedmux.run(Experiment.read(path, [f"method={method}"]), tmp_path / "run")
    clients = [entry["clients"] for entry in run.metrics[1:]]
    assert clients[0] < 40 and clients[-1] > clients[0]
    assert run.allocation["client"].max() >= 24


@pytest.mark.parametrize("method", ["mmfl-group", "random", "round-robin"])
def test_tasks_join_from_one_file(method, tmp_path):
    changes = {"rounds = 80": "rounds = 16", "round = 30": "round = 3", "round = 60": "round = 5"}
    path = shortened("new-tasks.toml", tmp_path, changes)
    run = fedmux.run(Experiment.read(path, [f"method={method}"]), tmp_path / "run")
    first = [int(run.allocation["round"][run.allocation["task"] == task].min()) for task in range(4)]
    assert first[2] >= 3 and first[3] >= 5
    if method == "mmfl-group":  # new tasks wait for the next cycle
        starts = [e["round"] for e in run.metrics if "groups" in e.get("allocation", {})]
        assert first[2] >= min(start for start in starts if start >= 3)
    else:  # of round robin, for the next frame: that of three tasks begins with round 3
        assert first[2:] == ([3, 6] if method == "round-robin" else [3, 5])
    assert "accuracy" not in run.metrics[2]["tasks"]["clothes-c"]
    assert set(run.summary["tasks"]) == {"clothes-a", "clothes-b", "clothes-c", "clothes-d"}


def test_the_quickstart_is_the_papers_setting(tmp_path):
    setting = assemble(Experiment.read(EXAMPLES / "quickstart.toml"))
    people = setting.population
    assert (people.clients, people.tasks) == (120, 3)
    assert (people.eligible.sum(1) == 3).sum() == 108 and (people.eligible.sum(1) == 2).sum() == 12
    for s in range(3):
        sizes = people.sizes[people.eligible[:, s], s]
        assert set(sizes) <= {*range(9, 16), *range(90, 151)}
        assert (sizes >= 90).sum() == round(0.1 * len(sizes))
    for task in setting.tasks:
        owners = np.repeat(np.arange(120), np.diff(task.offsets))
        held = {(int(i), int(y)) for i, y in zip(owners, task.y)}
        assert max(Counter(i for i, _ in held).values()) == 3
