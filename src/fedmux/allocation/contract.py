"""What an allocator has to keep: what it may ask for, what a plan is, what a draw is. A breach names it."""

import inspect
from collections.abc import Callable, Set
from functools import partial
from typing import get_args

import numpy as np

from fedmux.allocation.lessons import Lesson
from fedmux.allocation.plan import (
    Allocator,
    Assignment,
    Fixed,
    Plan,
    Probabilities,
    RoundState,
    Signal,
)
from fedmux.errors import FedmuxError
from fedmux.importing import closest
from fedmux.population import Bools, row_sums

SIGNALS: tuple[str, ...] = get_args(Signal)
LESSONS: tuple[str, ...] = get_args(Lesson)
PLANS = "fedmux.spread(...), fedmux.Probabilities(...) or fedmux.Fixed(...)"


def check_needs(allocator: Allocator) -> None:
    """Refuse signals that nobody sends, and lessons that no update teaches."""
    for attribute, known in (("needs", SIGNALS), ("learns", LESSONS)):
        named = getattr(allocator, attribute)
        who = f"{type(allocator).__name__}.{attribute}"
        if isinstance(named, str):
            raise FedmuxError(f'{who} is the text "{named}"; write frozenset({{"{named}"}})')
        if not isinstance(named, Set):
            raise FedmuxError(f'{who} is {named}; write frozenset({{"{known[0]}"}}) or the like')
        for name in named:
            if name not in known:
                names = ", ".join(known)
                raise FedmuxError(f'{who} names "{name}"{closest(str(name), known)}; known: {names}')


def check_arguments(allocator: Allocator) -> None:
    """Refuse methods that cannot be called as they will be."""
    for name, arguments in (("plan", ("state",)), ("learn", ("state", "lessons"))):
        try:
            inspect.signature(getattr(allocator, name)).bind(*arguments)
        except TypeError:
            raise FedmuxError(
                f"{type(allocator).__name__}.{name} cannot be called with {' and '.join(arguments)}; "
                f"write def {name}(self, {', '.join(arguments)})"
            ) from None


def planned(allocator: Allocator, state: RoundState) -> Plan:
    """The allocator's plan for a round, checked."""
    plan, who = allocator.plan(state), type(allocator).__name__
    if not callable(getattr(plan, "draw", None)) or isinstance(plan, type):
        made = "nothing" if plan is None else type(plan).__name__
        raise FedmuxError(f"{who}.plan returned {made}; it should return a plan: {PLANS}")
    if isinstance(plan, Probabilities):
        shape = state.population.sizes.shape
        _array("probability", plan.probability, shape, who)
        _array("processors", plan.processors, shape[:1], who)
        _check_probabilities(plan, state, who)
    elif isinstance(plan, Fixed):
        _array("client", plan.client, np.shape(plan.client)[:1], who)
        _array("task", plan.task, np.shape(plan.client)[:1], who)
    _check_betas(getattr(plan, "betas", None), state, who)
    return plan


def _check_betas(betas: object, state: RoundState, who: str) -> None:
    if betas is None:
        return
    _array("betas", betas, state.population.sizes.shape, who)
    assert isinstance(betas, np.ndarray)
    if betas.dtype.kind not in "iuf":
        raise FedmuxError(f"{who}: `betas` of its plan are of {betas.dtype}; they should be numbers")
    _none(
        state,
        who,
        ~np.isfinite(betas) & state.population.available,
        lambda i, s: (
            f"the weight of client {i}'s stale update for {state.task(s)} is {betas[i, s]}; it should be a "
            "finite number, 0 where there is none"
        ),
    )


def _array(name: str, values: object, shape: tuple[int, ...], who: str) -> None:
    if not isinstance(values, np.ndarray) or values.shape != shape:
        kind = type(values).__name__
        found = f"an array of shape {values.shape}" if isinstance(values, np.ndarray) else f"a {kind}"
        raise FedmuxError(f"{who}: `{name}` of its plan is {found}; it should be an array of shape {shape}")


def _check_probabilities(plan: Probabilities, state: RoundState, who: str) -> None:
    probability, available, none = plan.probability, state.population.available, partial(_none, state, who)
    total = row_sums(probability)
    none(
        ~(probability >= 0),
        lambda i, s: (
            f"the probability of client {i} for {state.task(s)} is {probability[i, s]:g}; "
            "none may be negative or NaN"
        ),
    )
    none(
        total > 1 + 1e-9,
        lambda i: f"the probabilities of client {i} add up to {total[i]:.6g}; a row may add up to at most 1",
    )
    none(
        (probability > 0) & ~available,
        lambda i, s: (
            f"client {i} has a probability for {state.task(s)}, which is not available to it; "
            "set it to 0 where state.population.available is false"
        ),
    )


def check_draw(plan: Plan, drawn: Assignment, state: RoundState, who: str) -> None:
    """The invariants of any draw."""
    people, client, task, none = state.population, drawn.client, drawn.task, partial(_none, state, who)
    none(
        (client < 0) | (client >= people.clients) | (task < 0) | (task >= people.tasks),
        lambda j: (
            f"client {client[j]} was drawn for task {task[j]}; "
            f"there are clients 0..{people.clients - 1} and tasks 0..{people.tasks - 1}"
        ),
    )
    if not (isinstance(plan, Fixed) and plan.beyond_capacity):
        used = np.bincount(client, drawn.count, people.clients)
        none(
            used > people.capacity,
            lambda i: f"client {i} got {used[i]:g} jobs and can do {people.capacity[i]}; plan fewer for it",
        )
    none(
        ~people.available[client, task],
        lambda j: (
            f"client {client[j]} was drawn for {state.task(task[j])}, which is not available to it; "
            "plan only pairs of state.population.available"
        ),
    )
    none(
        ~(drawn.expected > 0),
        lambda j: (
            f"client {client[j]} was drawn for {state.task(task[j])} at probability 0; weights divide by it"
        ),
    )


def _none(state: RoundState, who: str, wrong: Bools, says: Callable[..., str]) -> None:
    """FedmuxError about the first place at which something is wrong."""
    if wrong.any():
        place = (int(index[0]) for index in np.nonzero(wrong))
        raise FedmuxError(f"{who}, round {state.round + 1}: {says(*place)}")
