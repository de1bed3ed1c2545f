"""Real processes: a SuperLink and SuperNodes on loopback, TLS and node keys, and the simulator's result."""

import contextlib
import shutil
from importlib.resources import files
from pathlib import Path

import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import fedmux
from fedmux.cli import app
from fedmux.flower.federation import Federation, up

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
    up(file, 4, output, deadline=240, notice=said.append)
    federated = fedmux.Run(output)
    for name in ("digits", "clothes"):
        wanted = load_file(simulated.path / "models" / f"{name}.safetensors")
        for key, value in load_file(federated.path / "models" / f"{name}.safetensors").items():
            torch.testing.assert_close(value, wanted[key], rtol=1e-5, atol=1e-6)
    assert (federated.allocation["client"] == simulated.allocation["client"]).all()
    assert "4 clients are there" in said and said[-1].startswith("round 2/2  digits ")
    assert not processes_with(b"fedmux-federation-")


def test_the_app_that_init_writes_is_the_example_and_trains(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["flower", "init", "mine"]).exit_code == 0
    written = {path.name: path.read_text() for path in Path("mine").iterdir()}
    example = Path(__file__).parents[2] / "examples" / "flower-app"
    assert written == {path.name: path.read_text() for path in example.iterdir() if path.is_file()}
    again = CliRunner().invoke(app, ["flower", "init", "mine"])
    assert "exists already" in str(again.exception)
    (tmp_path / "short.toml").write_text(written["experiment.toml"].replace("rounds = 3", "rounds = 1"))
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


MISBEHAVING = """
from fedmux.flower import client

well_behaved = client._update


def update(task, job, rule):
    given, buffers = well_behaved(task, job, rule)
    if job.client == 0:
        raise LookupError("no such drawer")
    return {1: given * float("nan"), 2: given[:-1], 3: given}[job.client], buffers


client._update = update
app = client.client_app()
"""


def test_clients_that_raise_or_send_nonsense_are_refused_and_the_round_goes_on(tmp_path: Path) -> None:
    file, output = tmp_path / "experiment.toml", tmp_path / "federated"
    file.write_text(EXPERIMENT.replace("mmfl-lvr", "full").replace("rounds = 2", "rounds = 1"))
    shutil.copytree(str(files("fedmux.flower") / "app"), tmp_path / "app")
    (tmp_path / "app" / "client_app.py").write_text(MISBEHAVING)
    nodes = [f"partition-id={number} num-partitions=4" for number in range(4)]
    with Federation(tmp_path / "federation", nodes, secure=False) as federation:
        config = f'experiment="{file}" output="{output}" minimum-clients=4 deadline=240.0'
        federation.run(tmp_path / "app", config).wait(420)
    log = (tmp_path / "federation" / "run.log").read_text(errors="replace")
    run = fedmux.Run(output)
    assert run.finished, log[-3000:]
    assert {name: values["uploads"] for name, values in run.metrics[1]["tasks"].items()} == {
        "digits": 1,
        "clothes": 1,
    }
    failures = run.metrics[1]["failures"]
    assert {(f["client"], f["task"], f["kind"]) for f in failures} == {
        (client, task, kind)
        for client, kind in (("0", "raised"), ("1", "not-finite"), ("2", "shape"))
        for task in ("digits", "clothes")
    }
    assert len(failures) == 6 and {f["phase"] for f in failures} == {"train.multi"}
    assert 'client 0, task "digits": train.multi: error 2' in log
    assert "client 3," not in log and not federation.leftovers()


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
