"""Decimal bids win as if they were added up and divided without rounding: every mechanism, in fractions."""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedmux.recruitment import (
    MECHANISMS,
    budget_fair,
    gmm_fair,
    greedy_within_budget,
    max_min_fair,
)
from fedmux.recruitment.award import ROUNDING

Cents = list[list[int | None]]  # users x tasks; None: no bid


@dataclass
class Exact:
    """Who wins, and for max-min fair the shares of those who win less than a whole place."""

    full: set[tuple[int, int]] = field(default_factory=set)  # user, task
    part: dict[tuple[int, int], Fraction] = field(default_factory=dict)

    def win(self, users: list[int], task: int) -> None:
        self.full |= {(user, task) for user in users}


def ranked(cents: Cents, task: int) -> list[int]:
    """Users that bid, the cheapest first."""
    bids = [(row[task], user) for user, row in enumerate(cents) if row[task] is not None]
    return [user for _, user in sorted(bids)]


def budget_fair_exactly(cents: Cents, budget: Fraction, rng: np.random.Generator) -> Exact:
    found, tasks = Exact(), len(cents[0])
    for task in range(tasks):
        users = ranked(cents, task)
        found.win([u for k, u in enumerate(users, 1) if k * cents[u][task] <= budget / tasks], task)
    return found


def gmm_fair_exactly(cents: Cents, budget: Fraction, rng: np.random.Generator) -> Exact:
    found, orders = Exact(), [ranked(cents, task) for task in range(len(cents[0]))]
    for turn in range(len(cents)):
        joining = [(users[turn], task) for task, users in enumerate(orders) if turn < len(users)]
        budget -= sum(cents[user][task] for user, task in joining)
        if budget < 0:
            break
        found.full |= set(joining)
    return found


def in_order(cents: Cents, own: Fraction, users: list[int], task: int) -> list[int]:
    taken = []
    for user in users:
        own -= cents[user][task]
        if own < 0:
            break
        taken.append(user)
    return taken


def greedy_exactly(cents: Cents, budget: Fraction, rng: np.random.Generator) -> Exact:
    found, tasks = Exact(), len(cents[0])
    for task in range(tasks):
        found.win(in_order(cents, budget / tasks, ranked(cents, task), task), task)
    return found


def random_exactly(cents: Cents, budget: Fraction, rng: np.random.Generator) -> Exact:
    found, tasks = Exact(), len(cents[0])
    for task in range(tasks):
        users = rng.permutation(sorted(ranked(cents, task))).astype(int).tolist()
        found.win(in_order(cents, budget / tasks, users, task), task)
    return found


def posted_exactly(cents: Cents, price: Fraction, rng: np.random.Generator) -> Exact:
    found = Exact()
    for task in range(len(cents[0])):
        found.win([user for user in ranked(cents, task) if cents[user][task] < price], task)
    return found


def lowered(surplus: dict[int, Fraction], amount: Fraction) -> dict[int, Fraction]:
    """What is left to each after the richest came down to a common level that frees the amount."""
    left = sum(surplus.values()) - amount
    remaining, level = sorted(surplus.values()), Fraction(0)
    for place, least in enumerate(remaining):
        level = left / (len(remaining) - place)
        if level <= least:
            break
        left -= least
    return {task: min(value, level) for task, value in surplus.items()}


def max_min_fair_exactly(cents: Cents, budget: Fraction, rng: np.random.Generator) -> Exact:
    tasks, found = range(len(cents[0])), Exact()
    orders = [ranked(cents, task) for task in tasks]
    purse = [budget / len(tasks)] * len(tasks)
    for turn in range(1, len(cents) + 1):
        live = [s for s in tasks if len(orders[s]) >= turn]
        places = [min(turn, len(orders[s])) for s in tasks]
        need = [Fraction(k * cents[orders[s][k - 1]][s]) if k else Fraction(0) for s, k in enumerate(places)]
        bad = [s for s in live if need[s] > purse[s]]
        surplus = {s: purse[s] - need[s] for s in tasks if s not in bad}
        lacking = sum(need[s] - purse[s] for s in bad)
        for s in live:
            if s not in bad or lacking <= sum(surplus.values()):
                found.full.add((orders[s][turn - 1], s))
        if lacking > sum(surplus.values()):
            for s in bad:
                user = orders[s][turn - 1]
                share = min(Fraction(1), sum(surplus.values()) / (len(bad) * cents[user][s]))
                if share == 1:
                    found.full.add((user, s))
                elif share > 0:
                    found.part[user, s] = share
            break
        for s, left in lowered(surplus, lacking).items():
            purse[s] = need[s] + left
        for s in bad:
            purse[s] = need[s]
    return found


EXACTLY = {
    "max-min-fair": max_min_fair_exactly,
    "budget-fair": budget_fair_exactly,
    "budget-fair-as-published": budget_fair_exactly,
    "gmm-fair": gmm_fair_exactly,
    "greedy-within-budget": greedy_exactly,
    "random-within-budget": random_exactly,
    "posted-price": posted_exactly,
}

UNTWINNED = [name for name in MECHANISMS if name not in EXACTLY]
assert not UNTWINNED, f"{UNTWINNED}: give each a twin in exact fractions, as a row of EXACTLY"

a_bid = st.one_of(st.integers(0, 40), st.integers(0, 1000), st.none())
tables = st.tuples(st.integers(1, 8), st.integers(1, 4)).flatmap(
    lambda shape: st.lists(
        st.lists(a_bid, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
    )
)


@st.composite
def auctions(draw: st.DrawFn) -> tuple[Cents, int]:
    """Bids and a budget that often pays for some of them to the cent."""
    cents = draw(tables)
    tasks, some = len(cents[0]), [bid for row in cents for bid in row if bid is not None]
    exactly = {len(some) * max(some, default=0), sum(some), sum(some[: len(some) // 2])}
    exactly |= {count * bid * tasks for count, bid in enumerate(some, 1)}
    return cents, draw(st.one_of(st.integers(0, 3000), st.sampled_from(sorted(exactly))))


@pytest.mark.parametrize("name", MECHANISMS)
@settings(deadline=None, max_examples=300)
@given(auction=auctions(), seed=st.integers(0, 3))
@example(auction=([[20, 60, 0]], 60), seed=0)
@example(auction=([[10], [20]], 30), seed=0)
@example(auction=([[10], [10], [10]], 30), seed=0)
def test_decimal_bids_win_as_in_exact_arithmetic(name, auction, seed):
    cents, budget = auction
    bids = np.array([[np.nan if bid is None else bid / 100 for bid in row] for row in cents])
    award = MECHANISMS[name](bids, budget / 100, np.random.default_rng(seed))
    wanted = EXACTLY[name](cents, Fraction(budget), np.random.default_rng(seed))

    winners = {(int(user), int(task)) for user, task in zip(*np.nonzero(award.share))}
    assert {place for place in winners if award.share[place] == 1} == wanted.full
    assert winners - wanted.full == set(wanted.part)
    for place, share in wanted.part.items():
        assert award.share[place] == pytest.approx(float(share), rel=1e-7)
    assert (award.payment >= np.nan_to_num(bids) * award.share).all()  # to the last bit
    if name != "posted-price":
        assert award.paid <= budget / 100 * (1 + ROUNDING)
        assert award.leftover >= 0


def test_a_budget_that_pays_for_all_bids_to_the_cent_takes_all():
    first = max_min_fair(np.array([[0.2, 0.6, 0.0]]), 0.6)  # 0.6 / 3 is 0.19999999999999998
    assert first.share[0].tolist() == [1, pytest.approx(1 / 3), 1]
    assert first.payment[0, 0] == 0.2
    for mechanism in (gmm_fair, greedy_within_budget):
        assert mechanism(np.array([[0.1], [0.2]]), 0.3).take_up == 2  # 0.1 + 0.2 is 0.30000000000000004
    for mechanism in (budget_fair, gmm_fair, greedy_within_budget, max_min_fair):
        award = mechanism(np.array([[0.1], [0.1], [0.1]]), 0.3)
        assert (award.take_up, award.leftover) == (3, pytest.approx(0))


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "posted-price"])
def test_what_lacks_more_than_rounding_does_not_fit(name):
    """All ask 0.1 of 0.2 for each task; one of the third task asks a little more."""
    bids = np.full((2, 3), 0.1)
    for excess, more in ((0.5 * ROUNDING, True), (10 * ROUNDING, False)):
        bids[:, 2] = 0.1 * (1 + excess)
        award = MECHANISMS[name](bids, 0.6, np.random.default_rng(0))
        assert (award.take_up[2] == 2) == more
        assert award.paid <= 0.6 * (1 + ROUNDING)
        assert (award.payment >= bids * award.share).all()


@settings(deadline=None, max_examples=200)
@given(auction=auctions())
def test_gmm_fair_never_falls_below_max_min_fair(auction):
    cents, budget = auction
    bids = np.array([[np.nan if bid is None else bid / 100 for bid in row] for row in cents])
    fair = max_min_fair(bids, budget / 100).take_up.min()
    assert gmm_fair(bids, budget / 100).take_up.min() >= np.floor(fair)
