"""Who trains what: allocators turn a round's state into a plan. NumPy only, no torch."""

from fedmux.allocation.fair import fair_shares
from fedmux.allocation.fair_variance import fair_probabilities
from fedmux.allocation.lessons import Forecasts, Lessons
from fedmux.allocation.optimal import optimal_probabilities
from fedmux.allocation.plan import Allocator, Assignment, Fixed, Plan, Probabilities, RoundState, Signals
from fedmux.allocation.random import spread, uniform_choice
from fedmux.allocation.targets import feasible_targets

__all__ = [
    "Allocator",
    "Assignment",
    "Fixed",
    "Forecasts",
    "Lessons",
    "Plan",
    "Probabilities",
    "RoundState",
    "Signals",
    "fair_probabilities",
    "fair_shares",
    "feasible_targets",
    "optimal_probabilities",
    "spread",
    "uniform_choice",
]
