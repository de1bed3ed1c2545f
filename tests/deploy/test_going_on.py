"""Servers that are killed and interrupted: the next one goes on from the checkpoint."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from deployment import (
    WATCHED,
    app,
    config,
    equal_weights,
    experiment,
    processes_with,
    rounds_of,
    run_log,
    wait_for,
)

import fedmux
from fedmux.flower.federation import Federation


def server_process(federation: Federation) -> int:
    """The ServerApp's, which Flower starts in a session of its own."""
    found = []
    for process in federation.leftovers():
        with contextlib.suppress(OSError):  # ended since
            if b"flwr-serverapp" in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(process)
    (server,) = found
    return server


def test_a_killed_server_goes_on_and_its_clients_keep_their_numbers(tmp_path: Path) -> None:
    """Two wards join one after the other, so that ward-a is number 0; after the kill the other way round."""
    place, output, simulated = (tmp_path / name for name in ("marks", "run", "simulated"))
    place.mkdir()
    file = experiment(tmp_path / "experiment.toml", clients=2, rounds=3, method="fedvarp", tasks=2, rate=0.7)
    fedmux.run(fedmux.Experiment.read(file), simulated)
    watched = app(tmp_path / "app", WATCHED.format(place=str(place)))
    wards = ("ward-a", "ward-b")
    (place / "hold-0-1").touch()
    (place / "hold-1-1").touch()
    with Federation(tmp_path / "federation", [], secure=False) as federation:
        federation.node_configs += [f'client-id="{ward}" partition-id={n}' for n, ward in enumerate(wards)]

        def serve(order: tuple[int, int]) -> "subprocess.Popen[bytes]":
            for mark in place.glob("hello-*"):
                mark.unlink()
            run = federation.run(watched, config(file, output, 2))
            for number in order:
                federation.start_node(number)
                wait_for((place / f"hello-{wards[number]}").exists, f"{wards[number]} is greeted", run)
            return run

        run = serve((0, 1))
        wait_for(lambda: list(place.glob("training-*-1")), "the second round has begun", run)
        os.kill(server_process(federation), signal.SIGKILL)
        for name in ("run", "node-0", "node-1"):
            federation.stop(name)
        for hold in place.glob("hold-*"):
            hold.unlink()
        assert rounds_of(output) == 1
        first = (output / "metrics.jsonl").read_bytes()
        serve((1, 0)).wait(300)
        log = run_log(federation)
    assert fedmux.Run(output).finished, log
    assert (output / "metrics.jsonl").read_bytes().startswith(first)  # the first round was not done again
    assert log.count("round 1/3") == 1
    assert json.loads((output / "clients.json").read_text()) == {"ward-a": 0, "ward-b": 1}
    equal_weights(output, simulated)
    assert not federation.leftovers()


def test_up_that_is_interrupted_ends_all_it_started_and_goes_on(tmp_path: Path) -> None:
    """Once in the first round, before there is a checkpoint, once in the second."""
    file = experiment(tmp_path / "experiment.toml", clients=2, rounds=2)
    simulated = fedmux.run(fedmux.Experiment.read(file), tmp_path / "simulated")
    output, own = tmp_path / "run", tmp_path / "own"
    own.mkdir()
    command = [str(Path(sys.executable).with_name("fedmux")), "flower", "up", str(file), "--clients", "2"]
    command += ["-o", str(output)]

    def up() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            env=os.environ | {"TMPDIR": str(own)},  # which marks its processes
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    for rounds in (0, 1):
        process = up()
        wait_for(lambda done=rounds: rounds_of(output) == done, f"{rounds} rounds are done", process)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
        assert process.returncode == 130 and "Traceback" not in said, said
        assert not processes_with(str(own))
        assert list(own.iterdir()) == []
    first = (output / "metrics.jsonl").read_bytes()
    process = up()
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    assert (output / "metrics.jsonl").read_bytes().startswith(first) and "round 1/2" not in said
    equal_weights(output, simulated.path)
    assert not processes_with(str(own))
