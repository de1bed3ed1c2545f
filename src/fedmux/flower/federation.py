"""A federation on this machine: a SuperLink and SuperNodes as processes on loopback, with TLS and node keys.

For trying out an app and for tests. All its processes end with it, however it ends.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from fedmux.errors import FedmuxError
from fedmux.flower.certificates import write_certificates, write_node_key
from fedmux.flower.course import Course, follow, last_line
from fedmux.flower.interruption import interruptible
from fedmux.flower.serverapp import ServerProcess
from fedmux.flower.watchdog import marked, watched
from fedmux.runs.layout import EVENTS, SUMMARY

HOST = "127.0.0.1"
GRACE = 5.0  # seconds for processes to end by themselves
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    "OMP_NUM_THREADS": "1",
}


class Federation:
    """A context inside which the SuperLink and its nodes are up; if `temporary`, its folder goes with it."""

    def __init__(
        self, folder: Path, nodes: Sequence[str], secure: bool = True, *, temporary: bool = False
    ) -> None:
        self._watched = watched(mark_of(folder), folder if temporary else None)
        self.folder, self.node_configs, self.secure = folder, list(nodes), secure
        self.port = _free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Federation":
        for name in ("home", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._watched.__enter__()
        try:
            self._configure()
            self._start("superlink", "flower-superlink", *self._superlink_options())
            self._wait_for_port()
            for number in range(len(self.node_configs)):
                self.start_node(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            server = ServerProcess(self.mark).find()
            if server is not None:  # first, or it would record failures of its clients
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server, signal.SIGKILL)
            self._stop([name for name in self.processes if name != "superlink"])
            self._stop(list(self.processes))
        finally:  # the watchdog kills what is left
            self._watched.__exit__(None, None, None)

    @property
    def mark(self) -> str:
        """Of its processes, in their environment."""
        return mark_of(self.folder)

    def leftovers(self) -> list[int]:
        """Processes of this federation, including those that Flower has detached."""
        return marked(self.mark)

    def start_node(self, number: int) -> None:
        options = ["--superlink", f"{HOST}:{self.port}", "--host", HOST, "--port", str(_free_port())]
        options += ["--node-config", self.node_configs[number]]
        if self.secure:
            key = self.folder / f"node-{number}"
            if not key.exists():
                write_node_key(key)
                self.command("supernode", "register", f"{key}.pub", "local")
            options += ["--root-certificates", str(self.folder / "ca.crt")]
            options += ["--auth-supernode-private-key", str(key)]
        else:
            options.append("--insecure")
        self._start(f"node-{number}", "flower-supernode", *options)

    def run(self, app: Path, config: str) -> "subprocess.Popen[bytes]":
        """Start the app; the process logs to run.log until the run ends."""
        return self._start("run", "flwr", "run", str(app), "local", "--stream", "--run-config", config)

    def command(self, *arguments: str) -> None:
        done = subprocess.run(
            [_script("flwr"), *arguments], env=self.environment(), capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise FedmuxError(f"flwr {' '.join(arguments[:2])}: {(done.stderr or done.stdout).strip()}")

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        """End a process and everything it has started."""
        self._stop([name], how)

    def _stop(self, names: Sequence[str], how: int = signal.SIGTERM) -> None:
        """All at once; after a while also those that do not listen."""
        stopped = [self.processes.pop(name) for name in names if name in self.processes]
        for kind in (how, signal.SIGKILL):
            for process in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, kind)
            limit = time.monotonic() + GRACE
            for process in stopped:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, limit - time.monotonic()))

    def environment(self) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)  # where Flower's processes look for each other
        path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
        name, _, home = self.mark.partition("=")
        return os.environ | QUIET | {name: home, "TMPDIR": str(self.folder / "tmp"), "PATH": path}

    def _start(self, name: str, script: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [_script(script), *arguments],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        self.processes[name] = process
        return process

    def _configure(self) -> None:
        trust = f'root-certificates = "{self.folder / "ca.crt"}"' if self.secure else "insecure = true"
        if self.secure:
            write_certificates(self.folder, HOST)
        (self.folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = "{HOST}:{self.port}"\n{trust}\n'
        )

    def _superlink_options(self) -> list[str]:
        options = ["--host", HOST, "--port", str(self.port), "--disable-runtime-dependency-installation"]
        options += ["--database", str(self.folder / "superlink.db")]
        if not self.secure:
            return [*options, "--insecure"]
        options += ["--ssl-ca-certfile", str(self.folder / "ca.crt")]
        options += ["--ssl-certfile", str(self.folder / "server.pem")]
        options += ["--ssl-keyfile", str(self.folder / "server.key")]
        return [*options, "--enable-supernode-auth"]

    def _wait_for_port(self, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.processes["superlink"].poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex((HOST, self.port)) == 0:
                    return
            time.sleep(0.2)
        raise FedmuxError(f"the SuperLink did not come up: {last_line(self.folder / 'superlink.log')}")


def up(
    experiment: Path,
    clients: int,
    output: Path,
    *,
    app: Path | None = None,
    secure: bool = True,
    deadline: float = 300.0,
    metrics_port: int = -1,
    again: str = "",
    notice: Callable[[str], None] = print,
) -> None:
    """Train an experiment on a federation on this machine; without an app, on the simulator's data.

    `again`: the command that continues the run; the server keeps it in the run folder.
    """
    if (output / SUMMARY).exists():
        raise FedmuxError(f"{output}: holds a finished run; choose another folder with -o")
    nodes = [f"partition-id={number} num-partitions={clients}" for number in range(clients)]
    hint = f"`{again}` continues" if again else f"the same call with {output} continues"
    with interruptible(hint) as check, tempfile.TemporaryDirectory(prefix="fedmux-federation-") as name:
        folder = Path(name)
        app = (app or Path(str(files("fedmux.flower") / "app"))).resolve()
        config = f'experiment="{experiment.resolve()}" output="{output.resolve()}" '
        config += f"minimum-clients={clients} deadline={float(deadline)} metrics-port={metrics_port}"
        notice(
            f"starting a SuperLink and {clients} SuperNodes, {'TLS and node keys' if secure else 'insecure'}"
        )
        logged = output / EVENTS
        before = logged.stat().st_size if logged.exists() else 0  # of a run that is resumed
        with Federation(folder, nodes, secure, temporary=True) as federation:
            processes = federation.run(app, config), federation.processes["superlink"]
            course = Course(*processes, ServerProcess(federation.mark), folder, check)
            reason = follow(course.over, logged, before, notice) or course.reason()
        if not (output / SUMMARY).exists():
            raise FedmuxError(f"the federation did not finish: {reason}; {hint}")


def mark_of(folder: Path) -> str:
    """The variable that all processes of the federation in this folder have in their environment."""
    return f"FLWR_HOME={folder / 'home'}"


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _free_port() -> int:
    """One that nobody's outgoing connection is given before it is used: systems take those from 32768 up."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
