"""What an operator sees: lines of the log, metrics as Prometheus reads them, health over real HTTP."""

import errno
import http.client
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedmux.errors import FedmuxError
from fedmux.flower.operator import Operator
from fedmux.runs.rounds import Failure

ROUND: dict[str, Any] = {
    "round": 3,
    "seconds": 41.2,
    "clients": 4,
    "tasks": {
        "digits": {"jobs": 3, "uploads": 2, "upload_bytes": 800, "accuracy": 0.8, "loss": 0.5},
        "clothes": {"jobs": 1, "uploads": 1, "upload_bytes": 90},
    },
    "phases": {"signals": 5.0, "train": 8.5},
    "failures": [],
}


def ask(operator: Operator, path: str, verb: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", operator.port, timeout=10)
    connection.request(verb, path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def samples(operator: Operator) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels."""
    status, text = ask(operator, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rounds_become_metrics_and_lines_of_the_log(tmp_path: Path) -> None:
    with Operator(tmp_path / "log.jsonl", port=0) as operator:
        operator.describe(name="wards", method="mmfl-lvr")
        operator.round({"round": 0, "seconds": 0.0, "tasks": {"digits": {"accuracy": 0.1, "loss": 2.3}}})
        before = samples(operator)
        assert before["fedmux_round",] == before["fedmux_rounds_total",] == 0
        assert before["fedmux_task_accuracy", "digits"] == 0.1
        assert before["fedmux_clients",] == 0
        assert math.isnan(before["fedmux_last_round_timestamp_seconds",])
        operator.failure(Failure("ward-a", "digits", "train.multi", "late", "no answer"))
        operator.present(4)
        operator.round(ROUND)
        operator.failure(Failure("?", "-", "query.hello", "lost", "error 5"))
        operator.round({"round": 4, "seconds": 50.0, "tasks": {"digits": {"jobs": 1, "uploads": 1}}})
        seen = samples(operator)
    assert (seen["fedmux_round",], seen["fedmux_rounds_total",], seen["fedmux_clients",]) == (4, 2, 4)
    assert (seen["fedmux_jobs_total", "digits"], seen["fedmux_jobs_total", "clothes"]) == (4, 1)
    assert seen["fedmux_uploads_total", "digits"] == 3
    assert seen["fedmux_upload_bytes_total", "digits"] == 800
    assert seen["fedmux_task_accuracy", "digits"] == 0.8 and seen["fedmux_task_loss", "digits"] == 0.5
    assert ("fedmux_task_accuracy", "clothes") not in seen
    assert seen["fedmux_phase_seconds_total", "train"] == 8.5
    assert abs(seen["fedmux_last_round_timestamp_seconds",] - time.time()) < 60
    failed = {key[1:]: value for key, value in seen.items() if key[0] == "fedmux_failures_total"}
    assert {frozenset(key): value for key, value in failed.items()} == {
        frozenset(("digits", "late")): 1,
        frozenset(("-", "lost")): 1,
    }
    (info,) = [key for key in seen if key[0] == "fedmux_info"]
    assert {"wards", "mmfl-lvr"} < set(info)
    log = lines(tmp_path / "log.jsonl")
    assert [line["event"] for line in log] == ["start", "round", "failure", "round", "failure", "round"]
    assert (log[2]["client"], log[2]["kind"], log[2]["round"]) == ("ward-a", "late", 1)
    assert {key: log[3][key] for key in ROUND} == ROUND
    for line in log:
        assert line["time"][19] == "." and datetime.fromisoformat(line["time"]).utcoffset().seconds == 0


def test_a_resumed_run_shows_where_it_is(tmp_path: Path) -> None:
    with Operator(tmp_path / "log.jsonl", port=0) as operator:
        operator.resumed(7)
        seen = samples(operator)
        assert (seen["fedmux_round",], seen["fedmux_rounds_total",]) == (7, 0)
        assert json.loads(ask(operator, "/health")[1])["round"] == 7
    assert lines(tmp_path / "log.jsonl")[0]["event"] == "resume"


@pytest.mark.parametrize(
    ("event", "state"), [("round", "running"), ("finished", "finished"), ("stopped", "failed")]
)
def test_the_state_of_the_run_is_a_gauge(tmp_path: Path, event: str, state: str) -> None:
    with Operator(tmp_path / "log.jsonl", port=0) as operator:
        operator.event(event, reason="any")
        found = {key: value for key, value in samples(operator).items() if key[0] == "fedmux_run_state"}
    assert {key[-1]: value for key, value in found.items()} == {
        name: float(name == state) for name in ("running", "finished", "failed")
    }


def test_health_says_when_nothing_goes_on_and_any_event_is_progress(tmp_path: Path) -> None:
    with Operator(tmp_path / "log.jsonl", port=0, patience=0.5) as operator:
        status, text = ask(operator, "/health")
        assert (status, json.loads(text)["status"], json.loads(text)["round"]) == (200, "ok", 0)
        time.sleep(0.7)
        status, text = ask(operator, "/health")
        assert (status, json.loads(text)["status"]) == (503, "stalled")
        assert json.loads(text)["seconds_since_progress"] >= 0.6
        operator.event("phase", name="train")
        assert ask(operator, "/health")[0] == 200


def test_versions_are_told_and_all_else_is_refused_quietly(tmp_path: Path, capfd) -> None:
    with Operator(tmp_path / "log.jsonl", port=0) as operator:
        status, text = ask(operator, "/version")
        assert status == 200 and set(json.loads(text)) == {"fedmux", "flwr", "torch", "python"}
        assert [ask(operator, path)[0] for path in ("/", "/metrics/x", "/../etc/passwd")] == [404] * 3
        assert [ask(operator, "/metrics", verb)[0] for verb in ("POST", "PUT", "DELETE", "HEAD")] == [405] * 4
        with socket.create_connection(("127.0.0.1", operator.port)) as rude:
            rude.sendall(b"nonsense\r\n\r\n")
        assert ask(operator, "/health")[0] == 200
    assert capfd.readouterr().err == ""
    with pytest.raises(OSError):
        ask(operator, "/health")


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(FedmuxError) as raised, Operator(tmp_path / "log.jsonl", port=port):
            pass
    message = str(raised.value)
    assert f"metrics-port {port} " in message and "choose another" in message and "\n" not in message
    with pytest.raises(FedmuxError, match="metrics-port 99999 "), Operator(tmp_path / "l", port=99999):
        pass


def test_without_a_port_there_is_only_the_log(tmp_path: Path) -> None:
    before = threading.active_count()
    with Operator(tmp_path / "log.jsonl") as operator:
        operator.round(ROUND)
        assert operator.port is None and threading.active_count() == before
    assert len(lines(tmp_path / "log.jsonl")) == 1


def test_values_that_are_not_json_are_written_all_the_same(tmp_path: Path) -> None:
    operator, knot = Operator(tmp_path / "log.jsonl"), list[Any]()
    knot.append(knot)
    for value in (tmp_path, {1, 2}, float("nan"), {(1, 2): 3}, knot, "two\nlines", b"\xff"):
        operator.event("odd", name="x", value=value)
    assert len(lines(tmp_path / "log.jsonl")) == 7


def test_a_full_disk_is_told_once_and_stops_nothing(tmp_path: Path, capfd) -> None:
    with Operator(Path("/dev/full"), port=0) as operator:
        operator.round(ROUND)
        operator.round(ROUND)
        assert samples(operator)["fedmux_rounds_total",] == 2
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and os.strerror(errno.ENOSPC) in said[0] and "/dev/full" in said[0]
    absent = Operator(tmp_path / "absent" / "log.jsonl")
    absent.event("one")
    assert "absent" in capfd.readouterr().err
    (tmp_path / "absent").mkdir()
    absent.event("two")
    assert [line["event"] for line in lines(absent.log)] == ["two"]


def test_half_a_line_is_taken_back(tmp_path: Path) -> None:
    """A disk that fills up within a line: a limit on the size of files does the same."""
    log = tmp_path / "log.jsonl"
    program = f"""
import resource, signal
from pathlib import Path
from fedmux.flower.operator import Operator
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
operator = Operator(Path({str(log)!r}))
for _ in range(4):
    operator.event("first", text="x" * 60)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("training continues") == 1, done.stderr
    assert [line["event"] for line in lines(log)] == ["first"]


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    operator = Operator(tmp_path / "log.jsonl")

    def write() -> None:
        for number in range(50):
            operator.event("line", number=number, text="x" * 500)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(operator.log)) == 400
