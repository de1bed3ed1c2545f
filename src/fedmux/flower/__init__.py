"""fedmux on Flower: real clients on SuperNodes, the server's algorithms in a ServerApp.

    app = fedmux.flower.client_app(TASKS)      # client_app.py
    app = fedmux.flower.server_app(TASKS)      # server_app.py

Needs the extra `fedmux[flower]`. Nothing outside this folder imports Flower. Names load when first used: a
client's process does not load what only the server needs.
"""

import importlib
from typing import TYPE_CHECKING, Any

import flwr  # noqa: F401  where the extra is missing, this says so for all modules here

if TYPE_CHECKING:
    from fedmux.flower.client import client_app
    from fedmux.flower.server import server_app
    from fedmux.flower.tasks import FlowerTask, from_experiment
    from fedmux.privacy import Privacy

_HOME = {
    "FlowerTask": "flower.tasks",
    "Privacy": "privacy",
    "client_app": "flower.client",
    "from_experiment": "flower.tasks",
    "server_app": "flower.server",
}

__all__ = ["FlowerTask", "Privacy", "client_app", "from_experiment", "server_app"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedmux.flower' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedmux.{_HOME[name]}"), name)
