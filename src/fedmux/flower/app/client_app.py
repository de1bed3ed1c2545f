"""The client side: the tasks that the experiment file describes."""

from fedmux.flower import client_app

app = client_app()
