"""Clients and tasks that come and go, clients that are absent for a while, and clients that drop out."""

from fedmux.dynamics.presence import Presence
from fedmux.dynamics.returns import Returns
from fedmux.dynamics.settings import Absence, Dropout, Event, Process, Stragglers

__all__ = ["Absence", "Dropout", "Event", "Presence", "Process", "Returns", "Stragglers"]
