"""How likely users join and tasks stay empty: the formulas against the mechanisms with drawn costs."""

import math

import numpy as np
import pytest

from fedmux.recruitment import budget_fair, gmm_fair, greedy_within_budget, max_min_fair, posted_price
from fedmux.recruitment.bids import Exponential, Linear, Normal, Uniform
from fedmux.recruitment.chances import (
    joins_at_posted_price,
    joins_budget_fair,
    joins_gmm_fair,
    joins_max_min_fair,
    left_empty,
)

LAWS = [Uniform(low=0.1, high=0.9), Normal(mean=0.2, std=0.2), Linear(high=1.5), Exponential(rate=2.0)]
DRAWS = 2000


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_the_distribution_function_of_a_law_is_that_of_its_draws(law):
    from scipy.stats import kstest

    drawn = law.draw(4000, np.random.default_rng(0))
    assert kstest(drawn, np.vectorize(law.cdf)).pvalue > 0.001
    assert (law.cdf(-1.0), law.cdf(0.0)) == (0, 0)
    assert law.cdf(100.0) == pytest.approx(1)


def mean_share(mechanism, law, budget, turn, others=(), **options):
    """Mean and standard error of what the last user of the first task gets; all who come before ask nothing.

    `others`: what the last users of the other tasks ask.
    """
    bids = np.zeros((turn, 1 + len(others)))
    bids[-1, 1:] = others
    found = []
    for cost in law.draw(DRAWS, np.random.default_rng(turn)):
        bids[-1, 0] = cost
        found.append(mechanism(bids, budget, **options).share[-1, 0])
    return np.mean(found), np.std(found) / np.sqrt(DRAWS)


def assert_agrees(formula, simulated):
    mean, error = simulated
    assert 0 < formula < 1 and error > 0
    assert abs(formula - mean) < 4.5 * error


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
@pytest.mark.parametrize("turn", [1, 3])
def test_the_price_of_budget_fair_is_its_part_of_the_budget_over_the_turn(law, turn):
    formula = joins_budget_fair(law, 0.8 * turn, 2, turn)
    assert formula == pytest.approx(law.cdf(0.4))
    assert_agrees(formula, mean_share(budget_fair, law, 0.8 * turn, turn, [0.1]))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_gmm_fair_takes_a_user_if_all_of_the_turn_fit_into_what_remains(law):
    assert_agrees(joins_gmm_fair(law, 0.9, 0.5), mean_share(gmm_fair, law, 0.9, 2, [0.3, 0.2]))
    assert joins_gmm_fair(law, 0.9, 1.0) == 0


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_a_posted_price_takes_who_asks_less(law):
    formula = joins_at_posted_price(law, 0.4)
    assert_agrees(formula, mean_share(posted_price, law, 0.4, 1))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
@pytest.mark.parametrize(
    ("budget", "turn", "others", "given"),
    [
        # The other task needs all of its 0.4: the price is the task's own.
        (0.8, 1, [0.4], {"own": 0.4}),
        # It spares 0.3, which enlarges the budget; who asks more gets a fraction for 0.3.
        (0.8, 1, [0.1], {"own": 0.4, "surplus": 0.3}),
        (0.8, 2, [0.1], {"own": 0.4, "surplus": 0.2}),
        (1.2, 3, [0.02], {"own": 0.6, "surplus": 0.54}),  # the offer is above the price
        # The third lacks 0.2 of its 0.4, the second spares 0.3.
        (1.2, 1, [0.1, 0.6], {"own": 0.4, "surplus": 0.3, "lacking": 0.2, "short": 2}),
        # And here more than can be spared, so the budget is not enlarged, and both get fractions.
        (1.2, 1, [0.1, 2.0], {"own": 0.4, "surplus": 0.3, "lacking": 1.6, "short": 2}),
    ],
)
def test_the_share_under_max_min_fair_is_a_price_and_then_a_fraction(law, budget, turn, others, given):
    formula = joins_max_min_fair(law, turn, **given)
    assert_agrees(formula, mean_share(max_min_fair, law, budget, turn, others))
    alone = joins_max_min_fair(law, turn, given["own"])
    assert alone == law.cdf(given["own"] / turn)
    assert formula > alone or "surplus" not in given  # help never hurts


def test_the_expected_fraction_of_uniform_costs_has_a_closed_form():
    """E[x] = p + a ln(1 / p) for costs in [0, 1], price p and offer a below it."""
    found = joins_max_min_fair(Uniform(), 1, 0.3, surplus=0.2, lacking=0.5, short=2)
    assert found == pytest.approx(0.3 + 0.1 * math.log(1 / 0.3), abs=1e-9)


# Corollary 10


@pytest.mark.parametrize("y", [0.0, 0.5, 1.0, 3.0, 4.0, 50.0])
def test_two_tasks_stay_empty_as_often_as_the_closed_forms_say(y):
    wanted = math.exp(-y) * (1 + y), math.exp(-y) * (2 * math.exp(y / 2) - 1)
    assert left_empty(y, 2, 1.0) == pytest.approx(wanted, rel=1e-9)
    assert left_empty(y / 4, 2, 4.0) == pytest.approx(wanted, rel=1e-9)
    shared, apart = left_empty(y, 2, 1.0)
    assert shared < apart or y == 0


def test_the_figures_of_the_reference_for_two_tasks_are_met():
    assert left_empty(1, 2, 1) == pytest.approx((0.7358, 0.8452), abs=5e-4)
    assert left_empty(4, 2, 1) == pytest.approx((0.0916, 0.2522), abs=5e-4)
    assert left_empty(3, 2, 1) == pytest.approx((0.199, 0.396), abs=5e-4)


@pytest.mark.parametrize("tasks", [1, 2, 3, 6])
def test_sums_and_maxima_of_drawn_minima_reach_the_budget_as_often(tasks):
    cheapest = np.random.default_rng(0).exponential(0.5, (40_000, tasks))
    for budget in (0.4, 1.0, 3.0):
        formula = np.array(left_empty(budget, tasks, 2.0))
        found = np.array([(cheapest.sum(1) >= budget).mean(), (cheapest.max(1) >= budget / tasks).mean()])
        assert (np.abs(found - formula) < 4.5 * np.sqrt(formula * (1 - formula) / 40_000)).all()
        assert formula[0] < formula[1] or tasks == 1


@pytest.mark.parametrize(("tasks", "y"), [(2, 1.0), (2, 3.0), (2, 4.0), (3, 3.0)])
def test_the_mechanisms_leave_a_task_empty_as_often(tasks, y):
    """Ten users whose bids have rate 0.1, so that the cheapest has rate 1; budget y."""
    auctions, bidders = 1500, 10
    bids = np.random.default_rng(1).exponential(bidders, (auctions, bidders, tasks))
    mechanisms = (max_min_fair, gmm_fair, budget_fair, greedy_within_budget)
    empty = np.array([[held(table, y).take_up.min() < 1 for held in mechanisms] for table in bids])
    wanted = np.repeat(left_empty(y, tasks, 1.0), 2)
    chance = np.sqrt(wanted * (1 - wanted) / auctions)
    assert (np.abs(empty.mean(0) - wanted) < 4.5 * chance).all()
    assert not (empty[:, 0] & ~empty[:, 2]).any()
