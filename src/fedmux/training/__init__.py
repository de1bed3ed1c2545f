"""Training: one round, what surrounds it, and a run from start to end."""
