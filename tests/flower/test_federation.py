"""Real processes: a SuperLink and SuperNodes on loopback, TLS and node keys, and the simulator's result."""

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import fedmux
from fedmux.cli import app
from fedmux.flower import federation
from fedmux.flower.course import follow

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


def test_four_nodes_come_to_what_the_simulator_comes_to(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    simulated = fedmux.run(fedmux.Experiment.read(file), tmp_path / "simulated")
    output, said = tmp_path / "federated", list[str]()
    federation.up(file, 4, output, deadline=240, notice=said.append)
    federated = fedmux.Run(output)
    for name in ("digits", "clothes"):
        wanted = load_file(simulated.path / "models" / f"{name}.safetensors")
        for key, value in load_file(federated.path / "models" / f"{name}.safetensors").items():
            torch.testing.assert_close(value, wanted[key], rtol=1e-5, atol=1e-6)
    assert (federated.allocation["client"] == simulated.allocation["client"]).all()
    assert "4 clients are there" in said and said[-1].startswith("round 2/2  digits ")
    assert not processes_with(b"fedmux-federation-")


# A loss of the app's own: the experiment says it, the FlowerTask names it.
OWN_LOSS = """

def surprise(outputs, targets, *, scale):
    return scale * nn.functional.cross_entropy(outputs, targets, reduction="none")


TASKS["digits"] = replace(TASKS["digits"], loss="task:surprise")
"""


def test_the_app_that_init_writes_is_the_example_and_trains(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["flower", "init", "mine"]).exit_code == 0
    written = {path.name: path.read_text() for path in Path("mine").iterdir()}
    example = Path(__file__).parents[2] / "examples" / "flower-app"
    assert written == {path.name: path.read_text() for path in example.iterdir() if path.is_file()}
    again = CliRunner().invoke(app, ["flower", "init", "mine"])
    assert "exists already" in str(again.exception)
    Path("mine/task.py").write_text("from dataclasses import replace\n" + written["task.py"] + OWN_LOSS)
    short = written["experiment.toml"].replace("rounds = 3", "rounds = 1")
    short = short.replace(
        'model = "mlp"', 'model = "mlp"\nloss = "task:surprise"\nloss_options = {scale = 0.5}'
    )
    (tmp_path / "short.toml").write_text(short)
    command = [
        "flower",
        "up",
        "short.toml",
        "--app",
        "mine",
        "--clients",
        "2",
        "--insecure",
        "-o",
        "run",
        "-q",
    ]
    assert CliRunner().invoke(app, command).exit_code == 0
    run = fedmux.Run("run")
    assert set(run.allocation["client"]) <= {0, 1} and len(run.allocation) > 0
    assert set(run.summary["tasks"]) == {"clothes", "digits"}
    digits = run.metrics[1].tasks["digits"]
    assert digits.loss is not None and digits.loss < math.log(10) * 0.6 and not run.metrics[1].failures


class Run:
    """Logs a part each time that it is asked whether it is over."""

    def __init__(self, log: Path, *parts: bytes) -> None:
        self.log, self.parts = log, list(parts)

    def over(self) -> bool:
        if not self.parts:
            return True
        with self.log.open("ab") as file:
            file.write(self.parts.pop(0))
        return False


def test_up_follows_the_events_of_this_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    log, said = tmp_path / "log.jsonl", list[str]()
    lines = [
        json.dumps({"event": "notice", "text": "metrics: here"}),
        json.dumps({"event": "round", "round": 1, "tasks": {}}),
        json.dumps({"event": "notice", "text": "round 1/2  clients 1 and 2"}),
        json.dumps({"event": "stopped", "reason": "FedmuxError: too few"}),
    ]
    written = ("\n".join(lines) + "\n").encode()
    log.write_text('{"event": "notice", "text": "of an earlier process"}\n')
    run = Run(log, b"", written[:50], written[50:110], written[110:])
    assert follow(run.over, log, log.stat().st_size, said.append) == "FedmuxError: too few"
    assert said == ["metrics: here", "round 1/2  clients 1 and 2"]
    said.clear()
    (tmp_path / "none").mkdir()
    assert follow(Run(log).over, tmp_path / "none" / "log.jsonl", 0, said.append) is None
    assert said == []


def test_without_flower_its_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "flwr.py").write_text("raise ModuleNotFoundError(\"No module named 'flwr'\", name='flwr')")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "fedmux", "flower", "up", "absent.toml"]
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode and "flwr is not installed; run pip install" in done.stderr, done.stderr


def test_up_says_why_the_server_stopped(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(fedmux.FedmuxError, match=f"finish: .*metrics-port {port} .*run continues"):
            federation.up(file, 1, tmp_path / "run", secure=False, metrics_port=port)


def processes_with(mark: bytes) -> list[int]:
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in environment.read_bytes():
                found.append(int(environment.parent.name))
    return found


def test_what_a_federation_cannot_do_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    done = CliRunner().invoke(app, ["flower", "up", str(file), "--clients", "5"])
    assert isinstance(done.exception, fedmux.FedmuxError)
    assert "--clients 5 is more than population.clients = 4" in str(done.exception)
    file.write_text(EXPERIMENT + "\n[[event]]\nround = 1\nleave = [0]\n")
    done = CliRunner().invoke(app, ["flower", "up", str(file)])
    assert "[[event]] is for simulations" in str(done.exception)
