"""`fedmux` commands as real processes, without paying for the imports each time.

A warm process that has imported everything forks a child for each command: a process of its own with its own
exit code, output, signals and limits, in a few milliseconds. Run as a script, this file is the warm process;
imported, it is the tests' side of it. A child can be told to meet a signal at the n-th time that it touches
the disk, so that a run can be killed at every one of its write boundaries.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int  # negative: the signal that ended it
    out: str
    err: str

    def refusal(self) -> str:
        """The one line of a command that refused: exit code 2, nothing on stdout, no traceback."""
        assert self.code == 2, self
        assert self.out == "", self
        lines = self.err.splitlines()
        assert len(lines) == 1, self
        assert lines[0].startswith("fedmux: "), self
        return lines[0].removeprefix("fedmux: ")

    def done(self) -> "Ended":
        assert self.code == 0, self
        return self


@dataclass(frozen=True)
class Started:
    """A command that is running."""

    pid: int
    out: Path
    err: Path

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def send_all(self, number: signal.Signals) -> None:
        """To the processes of its group, as a terminal does; it must have been begun as the first of one."""
        os.killpg(self.pid, number)

    def wait_until_stopped(self) -> None:
        assert _ask({"stopped": self.pid})

    def wait(self) -> Ended:
        code = _ask({"wait": self.pid})
        ended = Ended(code, self.out.read_text(), self.err.read_text())
        self.out.unlink()
        self.err.unlink()
        return ended


def start(
    *arguments: object,
    cwd: Path,
    meet: signal.Signals | None = None,
    at: int | Sequence[int] = 0,
    file_limit: int | None = None,
    die_at_limit: bool = False,
    events: Path | None = None,
    own_session: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Started:
    """Begin `fedmux ARGUMENTS` in `cwd`.

    meet, at       send this signal to itself at the `at`-th touch of the disk below `cwd` (from 0), or at
                   each of several
    file_limit     no file may grow beyond this many bytes: the write fails, or with die_at_limit the process
                   ends in the middle of it
    events         write what it did to the disk below `cwd` into this file, a line each
    own_session    it and the processes that it starts are a session and a process group of their own
    environment    further variables
    """
    out, err = _new_file(), _new_file()
    request = {
        "arguments": [str(argument) for argument in arguments],
        "cwd": str(cwd),
        "out": str(out),
        "err": str(err),
        "meet": meet,
        "at": [at] if isinstance(at, int) else list(at),
        "file_limit": file_limit,
        "die_at_limit": die_at_limit,
        "events": str(events) if events else None,
        "own_session": own_session,
        "environment": dict(environment or {}),
    }
    return Started(_ask(request), out, err)


def fedmux(*arguments: object, cwd: Path, **conditions: Any) -> Ended:
    """`fedmux ARGUMENTS` in `cwd`, to its end."""
    return start(*arguments, cwd=cwd, **conditions).wait()


def wait_until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def touch_number(text: str, *arguments: object, cwd: Path) -> int:
    """Which touch of the disk by a command is described so; found by running it once."""
    events = _new_file()
    fedmux(*arguments, cwd=cwd, events=events).done()
    lines = events.read_text().splitlines()
    events.unlink()
    return next(number for number, line in enumerate(lines) if text in line)


def _new_file() -> Path:
    path = Path(_files().name) / str(next(_numbers))
    path.touch()
    return path


_numbers = itertools.count()
_files = functools.cache(tempfile.TemporaryDirectory)  # deleted when the process ends


@functools.cache
def _warm() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)
    return process


def _ask(request: dict[str, Any]) -> Any:
    process = _warm()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def _serve() -> None:
    import sklearn.datasets  # noqa: F401
    import torch

    from fedmux.data.sets import digits, fashion_mnist_sample

    _import_all()
    torch.set_num_threads(1)  # several tests run at a time
    sys.dont_write_bytecode = True  # modules that a test writes leave nothing behind
    for embedded in (digits, fashion_mnist_sample):  # unpacked once, for all children
        unpacked = functools.cache(embedded.read)
        unpacked()
        embedded.read = unpacked
    gc.freeze()  # or each child's collector would copy all of this
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            reply = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        elif "stopped" in request:
            reply = os.WIFSTOPPED(os.waitpid(request["stopped"], os.WUNTRACED)[1])
        else:
            reply = os.fork()
            if reply == 0:
                _child(request)
        print(json.dumps(reply), flush=True)


def _import_all() -> None:
    """Every module of fedmux that the commands need; Flower's and the page's start threads of their own."""
    import fedmux

    root = Path(fedmux.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] not in ("__main__", "flower", "ui"):
            importlib.import_module(".".join(("fedmux", *parts)).removesuffix(".__init__"))


def _child(request: dict[str, Any]) -> None:
    """Become the command; never returns."""
    from fedmux.cli import main

    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, "out", os.O_WRONLY),
        (2, "err", os.O_WRONLY),
    ):
        os.dup2(os.open(request.get(path, path), flags), number)
    os.chdir(request["cwd"])
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # where TMPDIR says now
    if request["own_session"]:
        os.setsid()
    if request["file_limit"] is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"],) * 2)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if request["die_at_limit"] else signal.SIG_IGN)
    if request["meet"] is not None or request["events"]:
        _watch(request)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    sys.argv = ["fedmux", *request["arguments"]]
    code: Any = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code or 0)


def _watch(request: dict[str, Any]) -> None:
    """Count what is about to happen to files below the working directory; strike at the one asked for."""
    count = 0
    log = os.open(request["events"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if request["events"] else None

    def touch(event: str, path: str) -> None:
        nonlocal count
        if log is not None:
            os.write(log, f"{event} {path}\n".encode())
        count += 1
        if request["meet"] is not None and count - 1 in request["at"]:
            os.kill(os.getpid(), request["meet"])

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if writes or event in ("os.mkdir", "os.rename", "os.remove", "os.truncate"):
            path = os.path.relpath(os.fsdecode(arguments[0])) if not isinstance(arguments[0], int) else ".."
            if not path.startswith(".."):
                touch(event, path)

    def fsync(descriptor: int) -> None:  # the one step without an audit event
        touch("os.fsync", os.path.relpath(Path(f"/proc/self/fd/{descriptor}").readlink()))
        flush_to_disk(descriptor)

    flush_to_disk, os.fsync = os.fsync, fsync
    sys.addaudithook(hook)


SMALL = """\
name = "small"
rounds = {rounds}
method = "random"

[population]
clients = 12
rate = 0.3

[[task]]
name = "clothes"
data = "fashion-mnist-sample"
model = "mlp"
learning_rate = 0.05
local_epochs = 1
partition = {{kind = "label-share", share = 0.3, sizes = [10, 20]}}

[[task]]
name = "digits"
data = "digits"
model = "mlp"
learning_rate = 0.1
local_epochs = 1
partition = {{kind = "dirichlet", alpha = 0.5, sizes = [10, 20]}}

[evaluation]
samples = 100

[output]
checkpoint_every = {checkpoint_every}
"""


def small_experiment(*, rounds: int, checkpoint_every: int) -> str:
    """Two tasks over twelve clients, as a file."""
    return SMALL.format(rounds=rounds, checkpoint_every=checkpoint_every)


if __name__ == "__main__":
    _serve()
