"""Who a secure SuperLink takes, and what the processes of a federation talk to: in one federation.

One registered node and three strangers: a key that is not registered, no key, and plaintext. Every process
writes down each address that it binds, connects to or looks up.
"""

import contextlib
import ipaddress
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from deployment import WATCHED, app, config, connected, experiment, run_log, wait_for

import fedmux
from fedmux.flower.federation import Federation

LISTENING = """
import json
import os
import sys

EVENTS = {{"connect", "bind", "sendto", "sendmsg", "getaddrinfo", "gethostbyname"}}


def hook(event, arguments):
    name = event.removeprefix("socket.")
    if name == event or name not in EVENTS:
        return
    address = arguments[0] if name.startswith("get") else arguments[1]
    said = {{
        "pid": os.getpid(),
        "program": os.path.basename((getattr(sys, "argv", None) or [""])[0]),
        "event": name,
        "address": repr(address) if isinstance(address, bytes) else address,
    }}
    file = os.open({file!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, (json.dumps(said, default=repr) + "\\n").encode())
    os.close(file)


sys.addaudithook(hook)
"""


REFUSALS = {
    "unregistered": "Failed to activate SuperNode",
    "no key": "All SuperNodes must be registered",
    "plaintext": "Connection attempt failed",  # and tries again, for ever
}


class Story(NamedTuple):
    run: fedmux.Run
    log: str
    strangers: dict[str, str]  # what each said
    addresses: list[dict[str, Any]]  # as the processes wrote them down
    sockets: set[
        str
    ]  # addresses of sockets of all processes, as the kernel has them in the middle of the run
    federation: Federation


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("strangers")
    place, output, addresses = folder / "marks", folder / "run", folder / "addresses.jsonl"
    place.mkdir()
    (place / "hold-0-0").touch()
    (place / "sitecustomize.py").write_text(LISTENING.format(file=str(addresses)))
    watched = app(folder / "app", WATCHED.format(place=str(place)))
    file = experiment(folder / "experiment.toml", clients=4, rounds=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(place), prepend=":")
        federation = Federation(folder / "federation", ["partition-id=0"])
        with federation:
            trust = ["--root-certificates", str(federation.folder / "ca.crt")]
            key = private_key(folder / "stranger")
            options = {
                "unregistered": [*trust, "--auth-supernode-private-key", str(key)],
                "no key": trust,
                "plaintext": ["--insecure"],
            }
            for number, (name, given) in enumerate(options.items(), start=1):
                start_stranger(federation, name, number, given)
            wait_for(lambda: connected(federation, 0), "the registered node is taken")
            said = {name: federation.folder / f"{name}.log" for name in options}
            wait_for(
                lambda: all(REFUSALS[name] in log.read_text(errors="replace") for name, log in said.items()),
                "the strangers are refused",
            )
            run = federation.run(watched, config(file, output, 1))
            wait_for((place / "training-0-0").exists, "the registered node trains", run)
            sockets = sockets_of(federation.leftovers())
            (place / "hold-0-0").unlink()
            run.wait(300)
            log = run_log(federation)
    yield Story(
        fedmux.Run(output),
        log,
        {name: log.read_text(errors="replace") for name, log in said.items()},
        [json.loads(line) for line in addresses.read_text().splitlines()],
        sockets,
        federation,
    )


def private_key(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP384R1())
    pem, openssh = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    path.write_bytes(key.private_bytes(pem, openssh, serialization.NoEncryption()))
    return path


def start_stranger(federation: Federation, name: str, number: int, options: list[str]) -> None:
    """A SuperNode that ends with the federation."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("flower-supernode")), *options]
    command += ["--superlink", f"127.0.0.1:{federation.port}", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--node-config", f"partition-id={number}"]
    with (federation.folder / f"{name}.log").open("wb") as log:
        federation.processes[name] = subprocess.Popen(
            command,
            env=federation.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def sockets_of(processes: list[int]) -> set[str]:
    """Local and remote IP addresses of what these processes have open, whichever library opened it."""
    open_files = set()
    for process in processes:
        with contextlib.suppress(OSError):  # ended, or closed, since
            open_files.update(str(file.readlink()) for file in Path(f"/proc/{process}/fd").iterdir())
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in open_files:
                state = fields[3]
                for side in fields[1 : 2 if state == "0A" else 3]:  # 0A: listening, there is no remote side
                    found.add(str(address(side.split(":")[0])))
    return found


def address(hexadecimal: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Of the kernel's table: words of 32 bits in the machine's order."""
    words = [int(hexadecimal[start : start + 8], 16) for start in range(0, len(hexadecimal), 8)]
    return ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))


def is_here(entry: dict[str, Any]) -> bool:
    """Loopback, a file, or nothing looked up."""
    given = entry["address"]
    if given is None or (isinstance(given, str) and entry["event"] in ("connect", "bind", "sendto")):
        return True
    host = given[0] if isinstance(given, list) else given
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def test_strangers_do_not_become_nodes(story: Story) -> None:
    for name, said in story.strangers.items():
        assert REFUSALS[name] in said and "SuperNode ID: " not in said, (name, said)


def test_the_server_sees_the_registered_node_alone(story: Story) -> None:
    assert story.run.finished and "1 clients are there" in story.log, story.log
    assert set(story.run.allocation["client"].tolist()) == {0}
    assert story.run.metrics[1]["tasks"]["one"]["uploads"] == 1
    assert json.loads((story.run.path / "clients.json").read_text()) == {"0": 0}


def test_no_process_talks_to_anything_but_loopback(story: Story) -> None:
    programs = {entry["program"] for entry in story.addresses if entry["event"] == "connect"}
    assert programs >= {"flower-supernode", "flower-superexec", "flwr", "flwr-serverapp", "flwr-clientapp"}
    binding = {entry["program"] for entry in story.addresses if entry["event"] == "bind"}
    assert binding >= {"flower-superlink", "flower-supernode"}
    elsewhere = [entry for entry in story.addresses if not is_here(entry)]
    assert elsewhere == []


def test_no_socket_is_open_but_on_loopback(story: Story) -> None:
    assert "127.0.0.1" in story.sockets
    assert [one for one in story.sockets if not ipaddress.ip_address(one).is_loopback] == []


def test_nothing_is_left_behind(story: Story) -> None:
    assert not story.federation.leftovers()
