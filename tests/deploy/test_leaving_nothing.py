"""`fedmux flower up` that is ended in the middle: no process is left, and it says why.

Its ClientApps listen to no signal, and each starts a process that does not either, in a session of its own.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import WATCHED, app, experiment, processes_with, wait_for

STUBBORN = """
import signal
import subprocess
import sys

IGNORE = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(600)"
subprocess.Popen([sys.executable, "-c", IGNORE], start_new_session=True)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
"""
SHELL = ["bash", "-c", '"$@"; true', "bash"]  # does not become the command itself


class Place:
    """A folder that marks the processes of `up`, which trains until it is ended."""

    def __init__(self, folder: Path) -> None:
        self.own, self.marks, self.output = (folder / name for name in ("own", "marks", "run"))
        self.own.mkdir()
        self.marks.mkdir()
        (self.marks / "hold-0-0").touch()
        file = experiment(folder / "experiment.toml", clients=2, rounds=2)
        client = app(folder / "app", WATCHED.format(place=str(self.marks)) + STUBBORN)
        self.command = [
            str(Path(sys.executable).with_name("fedmux")),
            "flower",
            "up",
            str(file),
            "--insecure",
        ]
        self.command += ["--app", str(client), "--clients", "2", "-o", str(self.output)]

    def up(self, *before: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*before, *self.command],
            env=os.environ | {"TMPDIR": str(self.own)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def trains(self, process: "subprocess.Popen[str]") -> None:
        mark = self.marks / "training-0-0"
        mark.unlink(missing_ok=True)
        wait_for(mark.exists, "client 0 trains", process)

    def starts(self, process: "subprocess.Popen[str]") -> None:
        wait_for(lambda: self.with_("flower-supernode"), "a node is there", process)

    def with_(self, name: str) -> list[int]:
        lines = {number: Path(f"/proc/{number}/cmdline") for number in processes_with(str(self.own))}
        return [number for number, line in lines.items() if name.encode() in read(line)]

    def is_left_clean(self) -> None:
        wait_for(lambda: not processes_with(str(self.own)), "no process is left", seconds=60)
        assert list(self.own.iterdir()) == []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("leaving"))


def test_a_killed_server_app_is_told_and_nothing_is_left(place: Place) -> None:
    process = place.up()
    place.trains(process)
    (server,) = place.with_("flwr-serverapp")
    os.kill(server, signal.SIGKILL)
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 2 and "Traceback" not in said, said
    last = said.strip().splitlines()[-1]
    assert (
        "the ServerApp was killed by SIGKILL" in last
        and f"-o {place.output} " in last
        and last.endswith("` continues")
    )
    place.is_left_clean()


def test_nothing_is_left_after_sigterm(place: Place) -> None:
    process = place.up()
    place.trains(process)
    process.terminate()
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 130 and "Traceback" not in said, said
    assert "stopped by SIGTERM" in said and f"-o {place.output} " in said and said.endswith("` continues\n")
    place.is_left_clean()


def test_nothing_is_left_after_up_itself_was_killed(place: Place) -> None:
    process = place.up()
    place.trains(process)
    process.kill()
    process.wait()
    place.is_left_clean()
    assert process.stdout is not None
    process.stdout.close()


def test_nothing_is_left_after_sighup_while_it_starts(place: Place) -> None:
    process = place.up()
    place.starts(process)
    process.send_signal(signal.SIGHUP)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 130 and "stopped by SIGHUP" in said, said
    place.is_left_clean()


def test_nothing_is_left_after_the_shell_that_started_it_was_killed(place: Place) -> None:
    shell = place.up(*SHELL)
    place.starts(shell)
    shell.kill()
    said = shell.communicate(timeout=120)[0]  # until nobody has the pipe
    assert "the process that started this one has ended" in said
    place.is_left_clean()
