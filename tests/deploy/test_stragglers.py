"""More clients are drawn than are waited for, and updates are clipped where they are made."""

from pathlib import Path

import numpy as np
import pytest
import torch
from deployment import WATCHED, app, config, connected, experiment, run_log, wait_for

import fedmux
from fedmux.flower.federation import Federation
from fedmux.training.assembly import assemble


def test_the_first_to_answer_count_and_a_straggler_is_left_in_peace(tmp_path: Path) -> None:
    """Client 1 hangs in the first round; with three drawn and two waited for nobody notices."""
    file, output, place = tmp_path / "experiment.toml", tmp_path / "run", tmp_path / "marks"
    experiment(file, clients=3, rounds=2, method="random", rate=2 / 3)
    private = "clip = 0.01, noise = 0.0"
    file.write_text(
        file.read_text().replace("local_epochs", f"privacy = {{{private}}}\nlocal_epochs")
        + "[stragglers]\nover_selection = 1.5\n"
    )
    place.mkdir()
    (place / "hold-1-0").touch()
    nodes = [f"partition-id={number}" for number in range(3)]
    with Federation(tmp_path / "federation", nodes, secure=False) as federation:
        run = federation.run(
            app(tmp_path / "app", WATCHED.format(place=str(place))),
            config(file, output, 3),
        )
        wait_for(lambda: run.poll() is not None, "the end of the run")
    finished = fedmux.Run(output)
    assert finished.finished, run_log(federation)[-3000:]
    first, second = finished.metrics[1:]
    assert [(f["client"], f["task"], f["kind"]) for f in first["failures"]] == [("1", "one", "slow")]
    assert first["dropped"] == 1 and first["tasks"]["one"]["uploads"] == 2
    assert second["clients"] == 2  # the straggler is still at work
    jobs = finished.allocation
    shares = (
        np.load(output / "population.npz")["sizes"][:, 0] / np.load(output / "population.npz")["sizes"].sum()
    )
    taken = jobs[(jobs["round"] == 1) & (jobs["weight"] > 0)]
    assert taken["weight"] == pytest.approx(shares[taken["client"]] * 3 / 2, rel=1e-5)
    (task,) = assemble(fedmux.Experiment.read(file)).tasks
    start, end = task.weights(task.layout.read()), finished.model("one")
    moved = float(torch.linalg.vector_norm(torch.cat([(end[key] - start[key]).flatten() for key in end])))
    assert 0 < moved <= 0.0101 * jobs["weight"].sum()
    assert finished.summary["privacy"]["one"]["releases"] == 2
    assert not federation.leftovers()


LYING = """
import torch

from fedmux.flower import client

own_forward, own_identity = client.forward, client.identity


def forward(task, model, x, y):
    values = own_forward(task, model, x, y)
    return values * float("nan") if len(task.offsets) == 2 else values  # client 0


client.forward = forward
client.identity = lambda context: own_identity(context) * (1000 if own_identity(context) == "2" else 1)
app = client.client_app()
"""


def test_reports_and_hellos_that_cannot_be_are_refused_and_the_others_train(tmp_path: Path) -> None:
    """Client 0 reports a loss that is no number, client 2 says a name without end."""
    file, output = (
        experiment(tmp_path / "experiment.toml", clients=3, rounds=1, method="mmfl-lvr"),
        tmp_path / "run",
    )
    nodes = [f"partition-id={number}" for number in range(3)]
    with Federation(tmp_path / "federation", nodes, secure=False) as federation:
        wait_for(lambda: all(connected(federation, number) for number in range(3)), "three nodes are there")
        run = federation.run(app(tmp_path / "app", LYING), config(file, output, 2))
        wait_for(lambda: run.poll() is not None, "the end of the run")
    finished = fedmux.Run(output)
    assert finished.finished, run_log(federation)[-3000:]
    assert [(f["client"], f["phase"], f["kind"]) for f in finished.metrics[1]["failures"]] == [
        ("0", "query.signals", "not-finite")
    ]
    assert set(finished.allocation["client"].tolist()) <= {1}
    assert "its id is not a short text" in run_log(federation)
    assert not federation.leftovers()
