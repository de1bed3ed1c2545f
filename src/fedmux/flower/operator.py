"""What the person who runs the server sees: a log of events, Prometheus metrics, and whether it is alive.

The log has one JSON line for each event. /metrics, /health and /version are served over HTTP, read-only and
without a password, so keep the port on loopback or on a network of your own.
"""

import errno
import json
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from fedmux.errors import FedmuxError
from fedmux.runs.rounds import Failure
from fedmux.runs.state import FAILED, FINISHED, RUNNING

VERSIONS = {name: version(name) for name in ("fedmux", "flwr", "torch")} | {
    "python": platform.python_version()
}

ENDS = {"finished": FINISHED, "stopped": FAILED}  # events that end a run, and the state they leave it in


class Operator:
    """A context: inside it the port is open, if one is wanted; for 0 any that is free, then in `port`."""

    def __init__(
        self, log: Path, *, host: str = "127.0.0.1", port: int | None = None, patience: float = 600.0
    ) -> None:
        self.log, self.host, self.port, self.patience = log, host, port, patience
        self.metrics = CollectorRegistry()  # of this operator alone

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"fedmux_{name}", meaning, labels, registry=self.metrics)

        def counter(name: str, meaning: str, *labels: str) -> Counter:  # ends in _total where it is shown
            return Counter(f"fedmux_{name}", meaning, labels, registry=self.metrics)

        self._info = Info("fedmux", "What is trained, with which versions", registry=self.metrics)
        self._state = gauge("run_state", "1 for the state that the run is in, 0 for the others", "state")
        self._round = gauge("round", "Number of the last completed round")
        self._rounds = counter("rounds", "Rounds that this process completed")
        self._ended = gauge("last_round_timestamp_seconds", "When the last round ended")
        self._clients = gauge("clients", "Clients that are connected")
        self._phases = counter("phase_seconds", "Seconds spent in a phase of rounds", "phase")
        self._failures = counter("failures", "Answers that were missing or refused", "task", "kind")
        self._diverged = gauge(
            "task_diverged_round", "Round in which a task was paused as diverged; 0: not paused", "task"
        )
        self._scores = {
            "accuracy": gauge("task_accuracy", "On the server's test points", "task"),
            "score": gauge("task_score", "The same by another metric, in its own unit", "task"),
            "progress": gauge(
                "task_progress", "Of such a task, from its start (0) to its target (1)", "task"
            ),
            "loss": gauge("task_loss", "On the server's test points", "task"),
        }
        self._work = {
            "jobs": counter("jobs", "Jobs whose update was taken", "task"),
            "uploads": counter("uploads", "Updates taken", "task"),
            "upload_bytes": counter("upload_bytes", "Bytes of updates and reports", "task"),
        }
        self._info.info(VERSIONS)
        self._enter(RUNNING)
        self._ended.set(math.nan)  # 0 would set off an alert
        self._lock, self._failing = threading.Lock(), False
        self._progress, self._last = time.monotonic(), 0
        self._server: WSGIServer | None = None

    def __enter__(self) -> "Operator":
        if self.port is not None:
            try:
                self._server = _Server((self.host, self.port), _QuietHandler)
            except (OSError, OverflowError) as error:
                reason = getattr(error, "strerror", None) or error
                raise FedmuxError(
                    f"metrics-port {self.port} on {self.host} cannot be opened ({reason}); "
                    "choose another, 0 for any that is free, or -1 for none"
                ) from None
            self._server.set_app(self._answer)
            self.port = self._server.server_port
            threading.Thread(target=self._server.serve_forever, name="fedmux-operator", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    # What happens

    def describe(self, **facts: object) -> None:
        """What this process trains, as the event "start" and as labels of fedmux_info."""
        self._info.info(VERSIONS | {key: str(value) for key, value in facts.items()})
        self.event("start", **facts, versions=VERSIONS)

    def resumed(self, round: int) -> None:
        """The run continues after a round that an earlier process completed."""
        self._last = round
        self._round.set(round)
        self.event("resume", round=round)

    def round(self, metrics: Mapping[str, Any]) -> None:
        """An observer of Training; round 0 is the evaluation before the first one."""
        self._last = int(metrics["round"])
        self._round.set(self._last)
        if self._last:
            self._rounds.inc()
            self._ended.set_to_current_time()
        for phase, seconds in metrics.get("phases", {}).items():
            self._phases.labels(phase).inc(seconds)
        for task, values in metrics["tasks"].items():
            for key, counter in self._work.items():
                counter.labels(task).inc(values.get(key, 0))
            self._diverged.labels(task).set(values.get("diverged", 0))
            for key, gauge in self._scores.items():
                if key in values:
                    gauge.labels(task).set(values[key])
        self.event("round", **metrics)

    def present(self, clients: int) -> None:
        """How many are connected now, also those that are busy or sit out."""
        self._clients.set(clients)

    def failure(self, failure: Failure) -> None:
        """Logged at once, not when the round ends."""
        self._failures.labels(failure.task, failure.kind).inc()
        self.event("failure", round=self._last + 1, **asdict(failure))

    def event(self, name: str, /, **fields: object) -> None:
        """One line of the log. A full disk is reported once and stops nothing."""
        if name in ENDS:
            self._enter(ENDS[name])
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = _json({"time": now, "event": name} | fields).encode() + b"\n"
        with self._lock:
            self._progress = time.monotonic()
            try:
                _append(self.log, line)
            except OSError as error:
                if not self._failing:
                    reason = (
                        f"{self.log}: cannot be written ({error.strerror}); training continues without it"
                    )
                    print(reason, file=sys.stderr, flush=True)
                self._failing = True
            else:
                self._failing = False

    def _enter(self, state: str) -> None:
        for name in (RUNNING, *ENDS.values()):
            self._state.labels(name).set(name == state)

    # What is served

    def _answer(self, request: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        status, kind, body = self._page(request["REQUEST_METHOD"], request["PATH_INFO"])
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        start(status, [*headers, ("Allow", "GET")] if status.startswith("405") else headers)
        return [body]

    def _page(self, verb: str, path: str) -> tuple[str, str, bytes]:
        if verb != "GET":
            return "405 Method Not Allowed", "text/plain", b"GET only\n"
        if path == "/metrics":
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(self.metrics)
        if path == "/version":
            return "200 OK", "application/json", _json(VERSIONS).encode()
        if path == "/health":
            idle = time.monotonic() - self._progress
            stalled = idle > self.patience
            state = "stalled" if stalled else "ok"
            health = {"status": state, "round": self._last, "seconds_since_progress": round(idle, 1)}
            status = "503 Service Unavailable" if stalled else "200 OK"
            return status, "application/json", _json(health).encode()
        return "404 Not Found", "text/plain", b"/metrics, /health or /version\n"


def _json(value: dict[str, Any]) -> str:
    """As JSON, whatever is in it: NaN, which JSON does not have, as text."""
    try:
        return json.dumps(value, default=str, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({str(key): str(part) for key, part in value.items()})


def _append(path: Path, line: bytes) -> None:
    """The whole line or nothing of it; opened each time, so that the file may be rotated away."""
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        if file.write(line) < len(line):
            file.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without looking up this machine's name, which can wait for a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up before they have the answer."""


class _QuietHandler(WSGIRequestHandler):
    timeout = 10  # seconds for a request to arrive

    def log_message(self, format: str, *arguments: object) -> None:
        pass
