"""Serves the pages on loopback: who may ask, what every answer says, and how it ends."""

import errno
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedmux.errors import FedmuxError
from fedmux.ui.app import create
from fedmux.ui.bundle import Bundle
from fedmux.ui.library import Library

HOST = "127.0.0.1"  # never another: the pages ask for no password
GRACE = 5  # seconds that open answers have when the server ends; streams end by themselves

# Vega makes functions from expressions and styles its own elements. Nothing comes from another place.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Lets through what only reads and is addressed to this machine by name: no other site can ask."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        names = (HOST, "localhost")
        self.hosts = {f"{name}:{port}".encode() for name in names} | (
            {name.encode() for name in names} if port == 80 else set()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        hosts = [value for name, value in scope["headers"] if name == b"host"]
        answer: ASGIApp = self.app
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            answer = PlainTextResponse("This page is for 127.0.0.1 and localhost only.\n", 421)
        elif scope["method"] not in ("GET", "HEAD"):
            answer = PlainTextResponse("Nothing can be changed here.\n", 405, {"Allow": "GET, HEAD"})
        # Names of folders need not be UTF-8.
        path = os.fsdecode(unquote_to_bytes(scope["raw_path"]))
        await answer({**scope, "path": path}, receive, secured)


def listen(port: int) -> socket.socket:
    """The port, or FedmuxError; 0 takes one that is free."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        remedy = "choose another with --port, or --port 0 for one that is free"
        if error.errno == errno.EADDRINUSE:
            raise FedmuxError(f"port {port} is taken, perhaps by another `fedmux ui`; {remedy}") from None
        raise FedmuxError(f"port {port} cannot be opened ({error.strerror}); {remedy}") from None
    return listener


class Server:
    """The pages of a folder on a port. `run` returns after `stop`, or after Ctrl-C in the main thread."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self.listener = listener
        port = listener.getsockname()[1]
        self.address = f"http://{HOST}:{port}/"
        self.bundle = Bundle()
        app = create(Library(folder), self.bundle, self._stopping)
        options: dict[str, Any] = {"log_level": "warning", "access_log": False, "lifespan": "off"}
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                Guard(app, port), ws="none", server_header=False, timeout_graceful_shutdown=GRACE, **options
            )
        )

    def run(self) -> None:
        self.bundle.prepare()
        try:
            self._uvicorn.run(sockets=[self.listener])
        finally:
            self.bundle.close()
            self.listener.close()

    def stop(self) -> None:
        self._uvicorn.should_exit = True

    def _stopping(self) -> bool:
        return self._uvicorn.should_exit
