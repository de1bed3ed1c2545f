"""What a user sets, checked: the base of every section and method, and how its mistakes are told."""

from fedmux.settings.checked import Checked

__all__ = ["Checked"]
