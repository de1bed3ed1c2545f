"""What a user is meant to see: one line that names the thing and the remedy."""


class FedmuxError(ValueError):
    """A mistake in a file, an argument or the surroundings; the command line prints it and exits with 2."""


class Interrupted(Exception):
    """Stopped by the user between two rounds; what there is can be resumed."""
