"""The pages of `fedmux ui`, asked for over HTTP from a real server on loopback."""

import html
import http.client
import json
import logging
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

import fedmux
from commands import wait_until
from conftest import table
from fedmux.report.charts import CHARTS
from fedmux.runs.history import History
from fedmux.runs.writing import RunFolder
from fedmux.ui.follow import Follower
from fedmux.ui.library import READING
from fedmux.ui.server import HEADERS, Server, listen

MARKUP = """<img src=x onerror=alert(1)> "double" 'single' & ü 日本"""


class Site:
    """A server in a thread, and how to ask it."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder, listen(0))
        self.port = int(self.server.address.rsplit(":", 1)[1].rstrip("/"))
        self.thread = Thread(target=self.server.run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def open(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, headers=headers or {})
        return connection.getresponse()

    def get(self, path: str, status: int = 200) -> str:
        answer = self.open(path)
        body = answer.read().decode()
        assert answer.status == status, (path, answer.status, body)
        return body

    def events(self, path: str) -> Iterator[dict[str, Any]]:
        answer = self.open(path)
        assert answer.status == 200
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied."""
    path = tmp_path_factory.mktemp("made") / "run"
    fedmux.run(fedmux.Experiment(**table()), path)
    return path


@pytest.fixture(scope="module")
def folder(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs in every condition."""
    folder = tmp_path_factory.mktemp("ui") / "runs"
    for place, name in enumerate(("old", "sweep/runs/random-seed-0", MARKUP, os.fsdecode(b"no-utf8-\xff"))):
        shutil.copytree(made, folder / name)
        os.utime(folder / name / "environment.json", (place + 1, place + 1))
    renamed = (folder / MARKUP / "experiment.toml").read_text().replace('"small"', json.dumps(MARKUP), 1)
    (folder / MARKUP / "experiment.toml").write_text(renamed)
    (folder / "broken").mkdir()
    (folder / "broken" / "metrics.jsonl").write_text('{"round": 0, "tasks": {}}\nnonsense\n')
    (folder / "broken" / "experiment.toml").write_text("rounds = 3\n")
    (folder / "half").mkdir()
    (folder / "half" / "environment.json").touch()
    (folder / "no run").mkdir()
    shutil.copytree(made, folder.parent / "outside")
    (folder / "way-out").symlink_to(folder.parent)
    (folder / "linked-run").symlink_to(made)
    shutil.copytree(made, folder / "linked-file")
    (folder / "linked-file" / "experiment.toml").unlink()
    (folder / "linked-file" / "experiment.toml").symlink_to("/etc/passwd")
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Site]:
    site = Site(folder)
    wait_until(lambda: READING not in site.get("/rows"))
    yield site
    site.stop()


def unfinished(made: Path, path: Path, lines: int) -> list[bytes]:
    """A run that has got so far; returns all lines that its log will have."""
    shutil.copytree(made, path)
    (path / "summary.json").unlink()
    log = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (path / "metrics.jsonl").write_bytes(b"".join(log[:lines]))
    return log


def append(path: Path, data: bytes) -> None:
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(data)


def test_the_list_has_every_run_and_the_newest_first(site: Site) -> None:
    page = site.get("/")
    places = [page.index(f'href="/run/{name}"') for name in ("sweep/runs/random-seed-0", "old")]
    assert places == sorted(places)
    assert page.count("<tr data-key=") == 6
    assert page.count("4/4") == 4
    assert site.get("/rows").count("<tr data-key=") == 6


def test_a_broken_run_is_listed_with_its_problem_and_opens(site: Site) -> None:
    for page in (site.get("/"), site.get("/run/broken")):
        assert "metrics.jsonl: line 2 is not an entry of a round" in page
    for page in (site.get("/"), site.get("/run/half")):
        assert "experiment.toml: is missing" in page
    assert "no run" not in site.get("/")


def test_markup_in_names_is_text_everywhere(site: Site) -> None:
    address = quote(MARKUP)
    pages = [site.get("/"), site.get(f"/run/{address}"), site.get(f"/compare?run={address}&run=old")]
    pages += [event["figures"] for event in site.events(f"/events?run={address}&run=old")]
    assert len(pages) == 4
    for page in pages:
        assert "<img" not in page
        assert html.escape(MARKUP, quote=False).replace('"', "&#34;").replace("'", "&#39;") in page
    assert f'href="/run/{address}"' in pages[0]
    assert f'data-events="/events/{address}"' in pages[1]


def test_a_name_that_is_no_utf8_opens(site: Site) -> None:
    assert 'href="/run/no-utf8-%FF"' in site.get("/")
    site.get("/run/no-utf8-%FF")
    site.get("/chart/task-accuracy?run=no-utf8-%FF")


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside",
        "%2e%2e/outside",
        "old/../../outside",
        "old/..%2f..%2foutside",
        "/etc",
        "%2Fetc",
        "./old",
        "old/",
        "old/checkpoints",
        "old%00",
        "way-out/outside",
        "linked-run",
        "linked-file",
        "no run".replace(" ", "%20"),
        "x" * 5000,
    ],
)
def test_nothing_outside_the_folder_and_nothing_but_runs_can_be_reached(site: Site, path: str) -> None:
    for address in (
        f"/run/{path}",
        f"/events/{path}",
        f"/chart/task-accuracy?run={path}",
        f"/compare?run={path}",
    ):
        assert "passwd" not in site.get(address, 404)


def test_links_that_lead_out_are_not_listed(site: Site) -> None:
    page = site.get("/")
    assert "linked" not in page
    assert "way-out" not in page


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    assert site.open("/", method).status == 405


@pytest.mark.parametrize("path", ["/", "/run/old", "/events/old", "/static/ui.css"])
def test_head_has_no_body(site: Site, path: str) -> None:
    answer = site.open(path, "HEAD")
    assert (answer.status, answer.read()) == (200, b"")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"]
)
def test_a_request_for_another_host_is_refused(site: Site, host: str) -> None:
    answer = site.open("/", headers={"Host": host.format(port=site.port)})
    assert answer.status == 421
    assert b"old" not in answer.read()


def test_localhost_is_this_machine(site: Site) -> None:
    assert site.open("/", headers={"Host": f"localhost:{site.port}"}).status == 200


def test_every_answer_has_the_security_headers(site: Site) -> None:
    answers = [
        site.open(path) for path in ("/", "/run/none", "/static/ui.css", "/events/old", "/themes.json")
    ]
    answers += [site.open("/", "POST"), site.open("/", headers={"Host": "evil.example"})]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert "default-src 'self'" in HEADERS["Content-Security-Policy"]


def test_what_a_browser_has_is_not_sent_again(site: Site) -> None:
    for path in ("/rows", "/static/page.css", "/static/charts.js", "/static/live.js"):
        tag = site.open(path).headers["ETag"]
        assert site.open(path, headers={"If-None-Match": tag}).status == 304
    site.get("/static/none.js", 404)
    site.get("/static/..%2fapp.py", 404)


def test_vega_is_served_and_kept(site: Site) -> None:
    answer = site.open("/static/vega.js?v=1")
    assert b"window.vegaEmbed" in answer.read()
    assert "immutable" in answer.headers["Cache-Control"]


def test_every_chart_comes_or_is_said_to_have_no_data(site: Site) -> None:
    drawn = []
    for kind in CHARTS:
        answer = site.open(f"/chart/{kind.key}?run=old")
        body = answer.read()
        assert answer.status in (200, 204)
        if answer.status == 200:
            drawn.append(kind.key)
            assert json.loads(body)["config"] == {}  # the page's colours
        assert site.open(f"/chart/{kind.key}?run=broken").status in (200, 204)
    assert "task-accuracy" in drawn
    site.get("/chart/none?run=old", 404)
    site.get("/chart/task-accuracy", 404)


def test_runs_are_compared_side_by_side(site: Site) -> None:
    page = site.get("/compare?run=old&run=sweep/runs/random-seed-0&run=gone")
    assert "2 runs compared" in page
    assert "accuracy of a" in page
    assert "Not shown: gone" in page
    assert "/chart/methods?run=old&amp;run=sweep%2Fruns%2Frandom-seed-0" in page
    site.get("/compare", 404)


def test_the_page_of_a_run_has_its_figures(site: Site, folder: Path) -> None:
    page = site.get("/run/old")
    summary = json.loads((folder / "old" / "summary.json").read_text())
    assert f"{summary['accuracy']['mean']:.1%}" in page
    assert "4 of 4" in page
    assert "checkpoint_every = 2" in page


def test_failures_are_told(made: Path, tmp_path: Path) -> None:
    log = unfinished(made, tmp_path / "run", 1)
    failure = {"client": "<b>7</b>", "task": "a", "phase": "train", "kind": "late", "reason": "no answer"}
    append(tmp_path / "run", json.dumps({**json.loads(log[1]), "failures": [failure] * 60}).encode() + b"\n")
    site = Site(tmp_path)
    page = site.get("/run/run")
    site.stop()
    assert "late 60" in page
    assert page.count("&lt;b&gt;7&lt;/b&gt;") == 50


def test_a_run_that_goes_on_is_followed_to_its_end(made: Path, tmp_path: Path) -> None:
    log = unfinished(made, tmp_path / "run", 1)
    record = RunFolder(tmp_path / "run")
    record.lock()  # somebody works on it
    site = Site(tmp_path)
    events = site.events("/events/run")
    assert "0 of 4" in next(events)["figures"]
    for number, line in enumerate(log[1:], 1):
        append(tmp_path / "run", line[:40])
        append(tmp_path / "run", line[40:])
        event = next(events)
        assert f"{number} of 4" in event["figures"]
        assert not event["finished"]
        assert f"running, round {number} of 4" in event["said"]
    shutil.copy(made / "summary.json", tmp_path / "summary")
    (tmp_path / "summary").rename(tmp_path / "run" / "summary.json")  # whole at once
    last = next(events)
    assert last["finished"]
    assert "finished" in last["figures"]
    assert list(events) == []
    site.stop()
    record.close()


def test_a_run_whose_process_goes_is_said_to_be_interrupted_with_what_continues_it(
    made: Path, tmp_path: Path
) -> None:
    unfinished(made, tmp_path / "run", 3)
    (tmp_path / "run" / "state.json").write_text('{"state": "running", "host": "' + platform.node() + '"}')
    record = RunFolder(tmp_path / "run")
    record.lock()
    site = Site(tmp_path)
    events = site.events("/events/run")
    assert "random: running, round 2 of 4" in next(events)["said"]
    assert '"state running"' in site.get("/rows")
    record.close()
    event = next(events)
    assert "random: interrupted: it was killed" in event["said"]
    assert f"`fedmux resume {tmp_path}/run` continues it" in event["figures"]
    assert not event["finished"]
    assert "it was killed, or its machine went down" in site.get("/rows")
    site.stop()


def test_it_ends_by_itself_while_somebody_watches(made: Path, tmp_path: Path, monkeypatch) -> None:
    """Not because the server's patience with open streams is over, which it says as an error."""
    errors: list[Any] = []
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "error", lambda *told, **how: errors.append(told))
    unfinished(made, tmp_path / "run", 1)
    site = Site(tmp_path)
    watching = [site.events("/events/run") for _ in range(3)]
    for events in watching:
        next(events)
    site.stop()
    assert errors == []
    assert [list(events) for events in watching] == [[], [], []]


def test_a_stream_that_is_left_ends(made: Path, tmp_path: Path) -> None:
    unfinished(made, tmp_path / "run", 1)
    site = Site(tmp_path)
    connections = site.server._uvicorn.server_state.connections
    before = len(connections)
    watching = [site.open("/events/run") for _ in range(5)]
    assert len(connections) == before + 5
    for answer in watching:
        answer.close()
    for _ in range(50):
        if len(connections) == before:
            break
        time.sleep(0.1)
    assert len(connections) == before
    site.stop()


def same(followed: History, read: History) -> bool:
    keys = (
        "name",
        "method",
        "label",
        "seed",
        "tasks",
        "rounds",
        "state",
        "problem",
        "table",
        "metrics",
        "summary",
    )
    return all(getattr(followed, key) == getattr(read, key) for key in keys)


def test_following_gives_what_reading_gives(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    log = unfinished(made, path, 0)
    follower, brief = Follower(path), Follower(path, keep=False)
    versions = set()
    for line in log:
        append(path, line[:25])
        assert same(follower.snapshot().history, History.read(path, live=True))
        append(path, line[25:])
        now = follower.snapshot()
        assert same(now.history, History.read(path, live=True))
        assert follower.snapshot().version == now.version
        versions.add(now.version)
        assert brief.snapshot().history.metrics == now.history.metrics[-1:]
    assert len(versions) == len(log)
    shutil.copy(made / "summary.json", path)
    assert same(follower.snapshot().history, History.read(path, live=True))


def test_a_log_that_was_cut_and_grew_again_is_read_anew(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    log = unfinished(made, path, 5)
    follower = Follower(path)
    before = follower.snapshot().history
    changed = [json.dumps({**json.loads(line), "seconds": 99.0}).encode() + b"\n" for line in log]
    for lines in ([*log[:3]], [*log[:3], *changed[3:5]], [*changed[:5]], []):
        (path / "metrics.jsonl").write_bytes(b"".join(lines))
        assert same(follower.snapshot().history, History.read(path, live=True))
    assert len(before.metrics) == 5


def test_nonsense_in_a_log_that_is_followed_is_told(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    log = unfinished(made, path, 2)
    follower = Follower(path)
    follower.snapshot()
    append(path, b"nonsense\n")
    problem = follower.snapshot().history.problem
    assert problem == "metrics.jsonl: line 3 is not an entry of a round; 2 rounds can still be read"
    append(path, log[2])
    assert same(follower.snapshot().history, History.read(path, live=True))
    shutil.rmtree(path)
    assert follower.snapshot().history.problem == "no such folder"


def command(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fedmux", "ui", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refusal(*arguments: object) -> str:
    process = command(*arguments)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1), (out, err)
    return err


def test_a_port_that_is_taken_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"port {port} is taken" in refusal(folder, "--port", port)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert "none: no such folder" in refusal(tmp_path / "none")


def test_a_missing_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedmux.cli.ui import ui

    for name in ("uvicorn", "fedmux.ui.server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(fedmux.FedmuxError, match=r"pip install 'fedmux\[ui\]'"):
        ui(folder)


def test_the_verb_prints_its_address_and_ctrl_c_ends_it(folder: Path) -> None:
    process = command(folder, "--port", 0, "--no-browser")
    assert process.stdout is not None
    address = process.stdout.readline().split(" at ")[1].split()[0]
    connection = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"))
    connection.request("GET", "/events/half")
    answer = connection.getresponse()
    assert answer.readline() == b"retry: 2000\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
