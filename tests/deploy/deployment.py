"""What the deployment tests share: a small experiment, clients that can be held up, and waiting."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

import fedmux
from fedmux.flower.federation import Federation

TASK = """
[[task]]
name = "{name}"
data = "digits"
model = "mlp"
learning_rate = 0.1
local_epochs = 1
partition = {{kind = "dirichlet", alpha = 0.5, sizes = [20, 60]}}
"""

# Marks are files: "hello-ID" when a client has been asked who it is, "training-CLIENT-ROUND" with the process
# when a job has begun; it goes on when there is no "hold-CLIENT-ROUND".
WATCHED = """
import os
import time
from pathlib import Path

from fedmux.flower import client

place = Path({place!r})
own_identity, own_update = client.identity, client._update


def mark(name):
    (place / f".{{name}}").write_text(str(os.getpid()))
    (place / f".{{name}}").rename(place / name)


def identity(context):
    mark(f"hello-{{own_identity(context)}}")
    return own_identity(context)


def update(task, job, rule):
    mark(f"training-{{job.client}}-{{job.round}}")
    while (place / f"hold-{{job.client}}-{{job.round}}").exists():
        time.sleep(0.1)
    return own_update(task, job, rule)


client.identity, client._update = identity, update
app = client.client_app()
"""


def experiment(
    file: Path, *, clients: int, rounds: int, method: str = "full", tasks: int = 1, rate: float = 0.5
) -> Path:
    head = f'name = "deployed"\nrounds = {rounds}\nseed = 5\nmethod = "{method}"\n'
    head += f"[population]\nclients = {clients}\nrate = {rate}\n"
    tail = "[evaluation]\nclients = false\nsamples = 100\n[output]\ncheckpoint_every = 1\n"
    file.write_text(head + "".join(TASK.format(name=name) for name in ("one", "two")[:tasks]) + tail)
    return file


def app(folder: Path, client: str | None = None) -> Path:
    """The app that comes with fedmux, or with another client."""
    shutil.copytree(str(files("fedmux.flower") / "app"), folder)
    if client is not None:
        (folder / "client_app.py").write_text(client)
    return folder


def config(file: Path, output: Path, clients: int, deadline: float = 200.0) -> str:
    """For `Federation.run`."""
    return f'experiment="{file}" output="{output}" minimum-clients={clients} deadline={deadline}'


def wait_for(
    what: Callable[[], Any], name: str, during: "subprocess.Popen[Any] | None" = None, seconds: float = 240
) -> Any:
    """The first true value; a failure when the process ends before."""
    end = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < end, f"not in {seconds:g} s: {name}"
        assert during is None or during.poll() is None, f"the run ended before: {name}"
        time.sleep(0.1)
    return value


def rounds_of(output: Path) -> int:
    """Rounds that a run has recorded and saved: those that it will not do again."""
    if not fedmux.Run.is_at(output):
        return -1
    if fedmux.Run(output).finished:
        return len(fedmux.Run(output).metrics) - 1
    saved = [int(path.stem.removeprefix("round-")) for path in output.glob("checkpoints/round-*.safetensors")]
    return min(len(fedmux.Run(output).metrics) - 1, max(saved, default=0))


def connected(federation: Federation, number: int) -> bool:
    """Whether the SuperLink has taken the node that runs now."""
    alive = federation.processes[f"node-{number}"].poll() is None
    return alive and "SuperNode ID: " in node_log(federation, number)


def start_node(federation: Federation, number: int) -> None:
    """With a new log."""
    (federation.folder / f"node-{number}.log").unlink(missing_ok=True)
    federation.start_node(number)


def node_log(federation: Federation, number: int) -> str:
    return (federation.folder / f"node-{number}.log").read_text(errors="replace")


def run_log(federation: Federation) -> str:
    return (federation.folder / "run.log").read_text(errors="replace")


def equal_weights(one: Path, other: Path) -> None:
    """The final models of two runs, to float tolerance."""
    names = sorted(path.stem for path in (other / "models").iterdir())
    assert names == sorted(path.stem for path in (one / "models").iterdir()) != []
    for name in names:
        torch.testing.assert_close(
            fedmux.Run(one).model(name), fedmux.Run(other).model(name), rtol=1e-5, atol=1e-6
        )


def processes_with(mark: str) -> list[int]:
    """Processes that have this in their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
    return found
