"""The base class of every section and method that a user sets, and the wording of their errors."""

from fedmux.settings.checked import Checked

__all__ = ["Checked"]
