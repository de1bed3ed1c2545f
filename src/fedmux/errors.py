"""Errors meant for the user: one line that names the problem and the fix."""


class FedmuxError(ValueError):
    """A user error in a file, an argument or the environment; the command line prints it and exits with 2."""

    kept = False  # all that a user's own code said about it is in a file that the message names


class Interrupted(Exception):
    """Stopped by the user between two rounds; the run can be resumed."""
