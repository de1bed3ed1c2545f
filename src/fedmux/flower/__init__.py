"""fedmux on Flower: real clients on SuperNodes, the server's algorithms in a ServerApp.

    app = fedmux.flower.client_app(TASKS)      # client_app.py
    app = fedmux.flower.server_app(TASKS)      # server_app.py

Needs the extra `fedmux[flower]`. Nothing outside this folder imports Flower.
"""

from fedmux.flower.client import client_app
from fedmux.flower.server import server_app
from fedmux.flower.tasks import FlowerTask, from_experiment
from fedmux.privacy import Privacy

__all__ = ["FlowerTask", "Privacy", "client_app", "from_experiment", "server_app"]
