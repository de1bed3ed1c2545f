"""The server side: the tasks that the experiment file describes."""

from fedmux.flower import server_app

app = server_app()
