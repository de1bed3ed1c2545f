"""The verb that shows runs in a browser."""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedmux.errors import FedmuxError


def ui(
    folder: Annotated[Path, typer.Argument(help="Folder with runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: any that is free.")] = 8765,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Watch and compare runs in a browser, on this machine only; Ctrl-C ends it."""
    if not folder.is_dir():
        raise FedmuxError(f"{folder}: no such folder; `fedmux run` makes runs/")
    try:
        from fedmux.ui.server import Server, listen
    except ModuleNotFoundError as missing:
        raise FedmuxError(f"{missing.name} is not installed; run pip install 'fedmux[ui]'") from None

    gc.set_threshold(50_000, 20, 20)  # long runs are hundreds of thousands of objects that stay
    server = Server(folder, listen(port))
    typer.echo(f"{folder} at {server.address} (Ctrl-C ends it)")
    if not no_browser and _can_show():
        import webbrowser
        from threading import Thread

        Thread(target=webbrowser.open, args=[server.address], daemon=True).start()
    try:
        server.run()
    except KeyboardInterrupt:
        gc.freeze()  # or the interpreter looks through all of it once more before it ends


def _can_show() -> bool:
    """Whether somebody sits there with a screen; otherwise a text browser might take over the terminal."""
    screen = sys.platform != "linux" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return screen and sys.stdout.isatty()
