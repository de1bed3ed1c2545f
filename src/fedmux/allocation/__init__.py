"""Who trains what: allocators turn a round's state into a plan. NumPy only, no torch."""

from fedmux.allocation.plan import Allocator, Assignment, Fixed, Plan, Probabilities, RoundState

__all__ = ["Allocator", "Assignment", "Fixed", "Plan", "Probabilities", "RoundState"]
