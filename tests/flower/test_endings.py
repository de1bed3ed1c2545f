"""A federation's processes end however the one that started them does: real processes, without Flower."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedmux.errors import Interrupted
from fedmux.flower import course as following
from fedmux.flower.course import Course, last_error
from fedmux.flower.interruption import interruptible
from fedmux.flower.serverapp import ServerProcess
from fedmux.flower.watchdog import end, marked

STUBBORN = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(600)"

# Starts a process that listens to nothing, in a session of its own, and waits.
STARTER = """
import os, subprocess, sys, time
from pathlib import Path
from fedmux.flower.watchdog import watched
mark, folder = sys.argv[1:]
name, _, value = mark.partition("=")
with watched(mark, Path(folder)):
    own = os.environ | {{name: value}}
    subprocess.Popen([sys.executable, "-c", {stubborn!r}], env=own, start_new_session=True)
    print("up", flush=True)
    time.sleep(600)
"""

# Says in how far it is interruptible, until it is.
WORKER = """
import time
from fedmux.errors import Interrupted
from fedmux.flower.interruption import interruptible
try:
    with interruptible("the hint") as check:
        print("up", flush=True)
        for _ in range(3000):
            check()
            time.sleep(0.02)
except Interrupted as stopped:
    open({said!r}, "w").write(str(stopped))
"""


def soon(what: Callable[[], object]) -> None:
    limit = time.monotonic() + 60
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    made = f"FLWR_HOME={tmp_path / 'home'}"
    yield made
    end(made)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_listens_to_nothing_ends_with_its_killed_starter(tmp_path: Path, mark: str, how: int) -> None:
    folder = tmp_path / "federation"
    folder.mkdir()
    command = [sys.executable, "-c", STARTER.format(stubborn=STUBBORN), mark, str(folder)]
    starter = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert starter.stdout is not None and starter.stdout.readline() == b"up\n"
    soon(lambda: len(marked(mark)) == 1)
    starter.send_signal(how)
    starter.communicate()
    soon(lambda: not marked(mark) and not folder.exists())


def worker(folder: Path, shell: str) -> tuple["subprocess.Popen[bytes]", Path]:
    """A shell that starts the worker in this way; where the worker says how it was interrupted."""
    program, said = folder / "worker.py", folder / "said"
    program.write_text(WORKER.format(said=str(said)))
    command = shell.format(python=sys.executable, program=program)
    process = subprocess.Popen(
        ["bash", "-c", f"{command}; true"],  # so that bash does not become the worker itself
        stdout=subprocess.PIPE,
        preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in (signal.SIGHUP, signal.SIGINT)],
    )
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    return process, said


def running(program: Path) -> list[int]:
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if line.read_bytes().endswith(f"{program}\0".encode()):
                found.append(int(line.parent.name))
        except OSError:
            continue
    return found


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    shell, said = worker(tmp_path, "{python} {program}")
    shell.kill()
    soon(said.exists)
    soon(said.read_text)
    assert "the process that started this one has ended; the hint" in said.read_text()


@pytest.mark.parametrize(
    "way", ["nohup {python} {program}", "setsid {python} {program}", "{python} {program} &"]
)
def test_in_the_background_it_goes_on_without_the_process_that_started_it(tmp_path: Path, way: str) -> None:
    shell, said = worker(tmp_path, f"{way} wait" if way.endswith("&") else way)
    (number,) = running(tmp_path / "worker.py")
    shell.kill()
    shell.wait()
    soon(lambda: parent_of(number) != shell.pid)
    time.sleep(0.2)
    assert running(tmp_path / "worker.py") == [number] and not said.exists()
    os.kill(number, signal.SIGTERM)
    soon(lambda: said.exists() and said.read_text())
    assert said.read_text() == "stopped by SIGTERM; the hint"


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def own_signals() -> Iterator[list[signal.Signals]]:
    """With what they do in a process that was started in the foreground."""
    numbers = [signal.SIGTERM, signal.SIGHUP]
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield numbers
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)


def test_signals_and_ctrl_c_unwind_and_are_as_they_were_afterwards(own_signals: list[signal.Signals]) -> None:
    unwound = 0
    for number in (*own_signals, None):
        with pytest.raises(Interrupted, match=r"stopped.*the hint"), interruptible("the hint"):
            try:
                if number is None:
                    raise KeyboardInterrupt
                signal.raise_signal(number)
                time.sleep(60)
            finally:
                unwound += 1
        assert [signal.getsignal(each) for each in own_signals] == [signal.SIG_DFL] * 2
    assert unwound == 3


def test_a_signal_that_is_ignored_stays_ignored(own_signals: list[signal.Signals]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible("the hint"):
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize(
    ("code", "how", "told"),
    [
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL", False),
        ("os.abort()", "killed by signal 6", False),
        ("os._exit(3)", "exit code 3", True),
    ],
)
def test_the_death_of_a_server_app_is_told(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch, code: str, how: str, told: bool
) -> None:
    """Whose parent does not wait for it, as Flower's does not."""
    monkeypatch.setattr(following, "LAST_WORDS", 0.1)
    program, go = tmp_path / "flwr-serverapp", tmp_path / "go"
    program.write_text(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n{code}\n")
    (tmp_path / "run.log").write_text("INFO : starting\nLookupError: no such drawer\nINFO : done\n")
    name, _, home = mark.partition("=")
    sleeper = subprocess.Popen(["sleep", "600"])
    app = subprocess.Popen([sys.executable, str(program)], env=os.environ | {name: home})
    try:
        course = Course(sleeper, sleeper, ServerProcess(mark), tmp_path, lambda: None)
        soon(lambda: course.server.find() == app.pid)
        assert not course.over()
        go.touch()
        soon(course.over)
        assert f"the ServerApp was {how}" in course.reason() or f"ended with {how}" in course.reason()
        assert ("no such drawer" in course.reason()) == told
    finally:
        for process in (sleeper, app):
            process.kill()
            process.wait()


def test_the_end_of_the_superlink_is_told(tmp_path: Path, mark: str) -> None:
    (tmp_path / "superlink.log").write_text("INFO : starting\nport in use\n\n")
    gone = subprocess.Popen(["true"])
    gone.wait()
    with subprocess.Popen(["sleep", "600"]) as run:
        course = Course(run, gone, ServerProcess(mark), tmp_path, lambda: None)
        assert course.over() and course.reason() == "the SuperLink ended: port in use"
        run.kill()


def test_the_last_error_of_flower_is_found(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("INFO : starting\nValueError: first\n  LookupError: no such drawer\nINFO : done\n")
    assert last_error(log) == "LookupError: no such drawer"
    log.write_text('ValueError: x\nclient 0, task "a": train.multi: LookupError: y\n')
    assert last_error(log) == "ValueError: x"
    log.write_text('fedmux.errors.FedmuxError: task "a": held_out() gives no points\n')
    assert last_error(log) == 'task "a": held_out() gives no points'
    log.write_text("")
    assert last_error(log) is None
