"""fedmux: many unrelated models train over one fleet of clients.

    experiment = fedmux.Experiment.read("experiment.toml")
    run = fedmux.run(experiment)
    print(run.summary["accuracy"])

The names listed here are public: documented, and never changed without notice. Everything else can be
imported but may move. Names load on first use, so `import fedmux` is fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmux.aggregation import Aggregator, Average, LocalRule, Unbiased, Updates
    from fedmux.allocation import (
        Allocator,
        Assignment,
        Fixed,
        Forecasts,
        Lessons,
        Plan,
        Probabilities,
        RoundState,
        Signals,
    )
    from fedmux.allocation.optimal import optimal_probabilities
    from fedmux.allocation.random import spread, uniform_choice
    from fedmux.data import Dataset
    from fedmux.errors import FedmuxError
    from fedmux.experiment import Experiment
    from fedmux.methods import Method, register
    from fedmux.population import Population
    from fedmux.randomness import Stream
    from fedmux.runs import trackers
    from fedmux.runs.frames import Frames, load
    from fedmux.runs.reading import Run
    from fedmux.runs.rounds import Round
    from fedmux.training.running import resume, run

_HOME = {
    "Aggregator": "aggregation",
    "Average": "aggregation",
    "Unbiased": "aggregation",
    "LocalRule": "aggregation",
    "Updates": "aggregation",
    "Allocator": "allocation",
    "Assignment": "allocation",
    "Fixed": "allocation",
    "Forecasts": "allocation",
    "Lessons": "allocation",
    "Plan": "allocation",
    "Probabilities": "allocation",
    "RoundState": "allocation",
    "Signals": "allocation",
    "optimal_probabilities": "allocation",
    "spread": "allocation",
    "uniform_choice": "allocation",
    "Dataset": "data",
    "FedmuxError": "errors",
    "Experiment": "experiment",
    "Frames": "runs.frames",
    "load": "runs.frames",
    "Method": "methods",
    "register": "methods",
    "Population": "population",
    "Stream": "randomness",
    "Round": "runs.rounds",
    "Run": "runs.reading",
    "resume": "training.running",
    "run": "training.running",
}

__all__ = [
    "Aggregator",
    "Allocator",
    "Assignment",
    "Average",
    "Dataset",
    "Experiment",
    "FedmuxError",
    "Fixed",
    "Forecasts",
    "Frames",
    "Lessons",
    "LocalRule",
    "Method",
    "Plan",
    "Population",
    "Probabilities",
    "Round",
    "RoundState",
    "Run",
    "Signals",
    "Stream",
    "Unbiased",
    "Updates",
    "load",
    "optimal_probabilities",
    "register",
    "resume",
    "run",
    "spread",
    "trackers",
    "uniform_choice",
]


def __getattr__(name: str) -> Any:
    if name == "trackers":  # a module, not a name in one
        return importlib.import_module("fedmux.runs.trackers")
    if name not in _HOME:
        raise AttributeError(f"module 'fedmux' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedmux.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
