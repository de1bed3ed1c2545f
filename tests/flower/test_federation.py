"""Real processes: a SuperLink and SuperNodes on loopback, TLS and node keys, and the simulator's result."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fedmux
from fedmux.flower.federation import Federation

EXPERIMENT = """
name = "federated"
rounds = 2
seed = 5
method = "mmfl-lvr"

[population]
clients = 4
jobs = 3

[[task]]
name = "digits"
data = "digits"
model = "mlp"
learning_rate = 0.1
local_epochs = 2
partition = {kind = "dirichlet", alpha = 0.5, sizes = [20, 60]}

[[task]]
name = "clothes"
data = "fashion-mnist-sample"
model = "cnn-small"
learning_rate = 0.05
local_epochs = 1
partition = {kind = "label-share", share = 0.5, sizes = [20, 60]}

[evaluation]
clients = false
samples = 200
"""
PROJECT = """
[project]
name = "federated"
version = "1.0.0"
dependencies = []

[tool.flwr.app]
publisher = "fedmux"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
experiment = ""
output = ""
deadline = 240.0
minimum-clients = 4
wait = 180.0
"""


def make_app(folder: Path) -> Path:
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    for side in ("server", "client"):
        (folder / f"{side}_app.py").write_text(
            f"from fedmux.flower import {side}_app\n\napp = {side}_app()\n"
        )
    return folder


@pytest.mark.parametrize("method", ["mmfl-lvr"])
def test_four_nodes_come_to_what_the_simulator_comes_to(tmp_path: Path, method: str) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT.replace("mmfl-lvr", method))
    simulated = fedmux.run(fedmux.Experiment.read(file), tmp_path / "simulated")
    output = tmp_path / "federated"
    nodes = [f"partition-id={number} num-partitions=4" for number in range(4)]
    with Federation(tmp_path / "federation", nodes) as federation:
        run = federation.run(make_app(tmp_path / "app"), f'experiment="{file}" output="{output}"')
        code = run.wait(420)
        log = (tmp_path / "federation" / "run.log").read_text(errors="replace")
    assert (code, (output / "summary.json").exists()) == (0, True), log[-4000:]
    federated = fedmux.Run(output)
    for name in ("digits", "clothes"):
        wanted = load_file(simulated.path / "models" / f"{name}.safetensors")
        for key, value in load_file(federated.path / "models" / f"{name}.safetensors").items():
            torch.testing.assert_close(value, wanted[key], rtol=1e-5, atol=1e-6)
    assert (federated.allocation["client"] == simulated.allocation["client"]).all()
