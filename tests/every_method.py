"""Every registered method with each of its options: what parametrised tests go over."""

import contextlib

import pytest

from conftest import METHODS, ONE_TASK, population
from fedmux.methods import Method
from fedmux.population import Population

CHOICES: dict[str, list[dict[str, object]]] = {  # options that change what a plan or a step is
    "participation": [
        {"participation": participation, "aggregation": aggregation}
        for participation in ("processors", "clients")
        for aggregation in ("unbiased", "weighted", "mean")
    ],
    "draws": [{"draws": "systematic"}, {"draws": "dependent-rounding"}],
    "mixing": [{"mixing": 0.0, "floor": 0.0}],
    "balance": [{"balance": "step", "report_share": 0.5}, {"stale": False}],
    "normalise": [{"normalise": True, "report_share": 0.5}],
    "precision": [{"storage": "disk"}],
    "rank": [{"rank": 2}],
    "beta": [{"beta": 0.7}],
    "warm_start": [{"warm_start": True}],
    "candidates": [{"candidates": 1.0}],
}


def variants(method: type[Method]) -> list[dict[str, object]]:
    """The default, and each choice that the method offers and accepts."""
    accepted: list[dict[str, object]] = [{}]
    for options in (
        options for key, some in CHOICES.items() if key in method.model_fields for options in some
    ):
        with contextlib.suppress(ValueError):
            chosen = method(**options)
            chosen.check(1 if method.name in ONE_TASK else 3)
            accepted.append(options)
    return accepted


VARIANTS = [
    pytest.param(method, options, id=f"{name}-{'-'.join(map(str, options.values())) or 'default'}")
    for name, method in METHODS.items()
    for options in variants(method)
]
UNBIASED = [variant for variant in VARIANTS if variant.values[0](**variant.values[1]).unbiased]


def people_for(method: type[Method]) -> Population:
    return population(clients=9, tasks=1 if method.name in ONE_TASK else 3)
