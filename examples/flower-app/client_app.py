"""The client side; task.py says what is trained."""

from task import TASKS

from fedmux.flower import client_app

app = client_app(TASKS)
