"""Watching a page for errors and for where it asks, and starting real commands."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Page, Request, Response

from conftest import table

MARKUP = """<img src=x onerror=alert(1)> "double" 'single' & ü"""
CHROMIUM = os.environ.get("FEDMUX_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
# Nothing but loopback has an address, also for what the browser itself would ask for.
OPTIONS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


class Watch:
    """What went wrong on a page, and every address that it asked for."""

    def __init__(self, page: Page) -> None:
        self.wrong: list[str] = []
        self.asked: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("requestfailed", self._failed)
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # that was under way when the page was left
            self.wrong.append(f"failed: {request.url}: {request.failure}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status}: {response.url}")


def started(*arguments: object, cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fedmux", *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, text=True
    )


def ended(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def slow(rounds: int) -> dict[str, Any]:
    """Rounds of about half a second: two convolutional networks that are scored on many points."""
    task = {"data": "fashion-mnist-sample", "model": "cnn-small", "learning_rate": 0.05, "local_epochs": 2}
    task["partition"] = {"kind": "label-share", "share": 0.3, "sizes": [40, 60]}
    tasks = [{"name": "clothes", **task}, {"name": "shirts", **task}]
    return table(name="slow", rounds=rounds, task=tasks, evaluation={"clients": True})
