"""What an allocator has to keep is checked; a breach names allocator, client, task and round."""

from typing import Any

import numpy as np
import pytest

from conftest import population, round_state
from fedmux.allocation import Allocator, Fixed, Plan, Probabilities, RoundState, spread, uniform_choice
from fedmux.allocation.contract import check_draw, check_needs, planned
from refusals import refused


class Mine(Allocator):
    """Plans what it is given."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def plan(self, state: RoundState) -> Plan:
        return self.made


PEOPLE = population()
STATE = round_state(PEOPLE, round=2)
GOOD = spread(STATE, uniform_choice(PEOPLE.available), "processors")
CLIENT, TASK = (int(index[0]) for index in np.nonzero(~PEOPLE.available))
BUSY = int(np.flatnonzero(PEOPLE.available.all(1) & (PEOPLE.capacity < 3))[0])


def with_probability(client: int, task: int, value: float) -> Probabilities:
    probability = GOOD.probability.copy()
    probability[client, task] = value
    return Probabilities(probability, GOOD.processors)


def with_betas(betas: Any) -> Probabilities:
    return Probabilities(GOOD.probability, GOOD.processors, betas=betas)


def with_beta(value: float) -> Probabilities:
    betas = np.zeros(PEOPLE.sizes.shape)
    betas[BUSY, 1] = value
    return with_betas(betas)


@pytest.mark.parametrize(
    ("made", "place", "remedy"),
    [
        (with_beta(np.inf), ("Mine", "round 3", f"client {BUSY}", "task 1", "inf"), "finite"),
        (with_beta(np.nan), ("Mine", "round 3", f"client {BUSY}", "task 1", "nan"), "finite"),
        (with_betas([1.0]), ("Mine", "betas", "list"), "(8, 3)"),
        (with_betas(np.full((8, 3), "1")), ("Mine", "betas", "<U1"), "numbers"),
        (GOOD.probability, "Mine.plan returned ndarray", "fedmux.Probabilities"),
        (None, "Mine.plan returned nothing", "fedmux.spread"),
        (Probabilities, "Mine.plan returned", "fedmux.Probabilities(...)"),
        (Probabilities(GOOD.probability.T, GOOD.processors), ("Mine", "probability", "(3, 8)"), "(8, 3)"),
        (Probabilities(GOOD.probability, [1] * 8), ("Mine", "processors", "list"), "(8,)"),
        (Fixed(np.array([0, 1]), np.array([0])), ("Mine", "task", "(1,)"), "(2,)"),
        (with_probability(0, 1, -0.5), ("Mine", "round 3", "client 0", "task 1", "-0.5"), "negative"),
        (with_probability(0, 1, np.nan), ("Mine", "round 3", "client 0", "task 1", "nan"), "NaN"),
        (with_probability(3, 0, 1.5), ("Mine", "round 3", "client 3", "add up to 1."), "at most 1"),
        (with_probability(CLIENT, TASK, 0.01), (f"client {CLIENT}", f"task {TASK}"), "set it to 0"),
    ],
)
def test_a_broken_plan_says_who_made_it_and_where(made: Any, place: Any, remedy: str) -> None:
    with refused(place, remedy):
        planned(Mine(made), STATE)


@pytest.mark.parametrize(
    ("plan", "place", "remedy"),
    [
        (Fixed(np.array([CLIENT]), np.array([TASK])), (f"client {CLIENT}", f"task {TASK}"), "available"),
        (Fixed(np.full(3, BUSY), np.arange(3)), (f"client {BUSY}", "3 jobs"), "fewer"),
        (Fixed(np.array([9]), np.array([0])), "client 9", "clients 0..7"),
        (Fixed(np.array([0]), np.array([-1])), "task -1", "tasks 0..2"),
    ],
)
def test_a_broken_draw_says_who_planned_it_and_where(plan: Fixed, place: Any, remedy: str) -> None:
    drawn = planned(Mine(plan), STATE).draw(STATE.rng())
    with refused(("Mine", "round 3", *([place] if isinstance(place, str) else place)), remedy):
        check_draw(plan, drawn, STATE, "Mine")


@pytest.mark.parametrize(
    ("needs", "place", "remedy"),
    [
        (frozenset({"losses"}), 'Mine.needs names "losses"', ("loss", "loss, norm, residual, projection")),
        ("loss", 'Mine.needs is the text "loss"', 'frozenset({"loss"})'),
    ],
)
def test_a_signal_that_nobody_sends_is_refused(needs: Any, place: str, remedy: Any) -> None:
    allocator = Mine(GOOD)
    allocator.needs = needs
    with refused(place, remedy):
        check_needs(allocator)


def test_an_allocator_without_a_plan_is_named() -> None:
    class Lazy(Allocator):
        pass

    with refused("Lazy has no plan", "define one"):
        planned(Lazy(), STATE)
