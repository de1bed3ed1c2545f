"""The server side; experiment.toml says how it is trained."""

from task import TASKS

from fedmux.flower import server_app

app = server_app(TASKS)
