"""Who trains what: allocators turn a round's state into a plan. NumPy only, no torch."""

from fedmux.allocation.optimal import optimal_probabilities
from fedmux.allocation.plan import Allocator, Assignment, Fixed, Plan, Probabilities, RoundState, Signals

__all__ = [
    "Allocator",
    "Assignment",
    "Fixed",
    "Plan",
    "Probabilities",
    "RoundState",
    "Signals",
    "optimal_probabilities",
]
