"""Training a run: the round, what surrounds it, and a run from start to end."""
