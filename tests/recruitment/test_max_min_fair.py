"""The max-min fair auction: against its rules written out, its closed form, and what [P2] claims of it."""

import numpy as np
import pytest

from fedmux.recruitment import gmm_fair, max_min_fair


def instance(seed: int, missing: float = 0.2):
    rng = np.random.default_rng(seed)
    users, tasks = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    bids = rng.uniform(0, 1, (users, tasks)) ** rng.choice([0.5, 1, 2]) * rng.uniform(0.2, 1, tasks)
    if seed % 3 == 0:
        bids = np.ceil(10 * bids) / 10  # ties
    bids[rng.random(bids.shape) < missing] = np.nan
    return bids, rng.uniform(0, 0.8) * users * tasks


def taken_from_the_richest(surplus, amount):
    """What is left to each after the richest were lowered to a common level that frees the amount."""
    low, high = 0.0, max(surplus, default=0.0)
    for _ in range(200):
        level = (low + high) / 2
        if sum(min(s, level) for s in surplus) > sum(surplus) - amount:
            high = level
        else:
            low = level
    return [min(s, low) for s in surplus]


def by_the_rules(bids, budget, *, use_own_budget=False, literal=False):
    """Share, payment and full rounds, by turns. `literal`: in the last turn donors keep what they gave."""
    tasks = bids.shape[1]
    order = [sorted(np.flatnonzero(~np.isnan(column)), key=lambda i: (column[i], i)) for column in bids.T]
    ranked = [[bids[i, s] for i in users] for s, users in enumerate(order)]
    purse, count = [budget / tasks] * tasks, [0] * tasks
    share, payment, rounds = np.zeros(bids.shape), np.zeros(bids.shape), 0
    for turn in range(1, len(bids) + 1):
        live = [s for s in range(tasks) if len(ranked[s]) >= turn]
        if not live:
            break
        need = [
            turn * ranked[s][turn - 1] if s in live else len(ranked[s]) * ranked[s][-1] if ranked[s] else 0.0
            for s in range(tasks)
        ]
        bad = [s for s in live if need[s] > purse[s] * (1 + 1e-12)]
        donors = [s for s in range(tasks) if s not in bad]
        surplus = [max(0.0, purse[s] - need[s]) for s in donors]
        lacking = sum(need[s] - purse[s] for s in bad)
        last = lacking > sum(surplus) * (1 + 1e-12) + 1e-12
        if last:
            lacking = 0.0
            for s in bad:
                bid, user = ranked[s][turn - 1], order[s][turn - 1]
                own = purse[s] if use_own_budget and turn == 1 else 0.0
                payment[user, s] = min(bid, sum(surplus) / len(bad) + own)
                share[user, s] = payment[user, s] / bid
                lacking += max(0.0, payment[user, s] - own)
        if not (last and literal):
            for s, left in zip(donors, taken_from_the_richest(surplus, lacking)):
                purse[s] = need[s] + left
        for s in live:
            if s not in bad or not last:
                count[s] = turn
                purse[s] = max(purse[s], need[s])
        if last:
            break
        rounds = turn
    for s in range(tasks):
        for user in order[s][: count[s]]:
            share[user, s], payment[user, s] = 1.0, purse[s] / count[s]
    return share, payment, rounds


@pytest.mark.parametrize("use_own_budget", [False, True])
def test_the_award_is_that_of_the_rules_written_out(use_own_budget):
    fractional = 0
    for seed in range(400):
        bids, budget = instance(seed)
        award = max_min_fair(bids, budget, use_own_budget=use_own_budget)
        share, payment, _ = by_the_rules(bids, budget, use_own_budget=use_own_budget)
        assert award.share == pytest.approx(share, abs=1e-7)
        assert award.payment == pytest.approx(payment, abs=1e-7)
        fractional += bool((award.share % 1 > 0).any())
    assert fractional > 50


def test_full_rounds_are_as_many_as_fit_when_all_are_paid_the_last_bid():
    """t* = max{t : t sum_s b_(t),s <= B} with enough bidders, however donors share the burden."""
    for seed in range(400):
        bids, budget = instance(seed, missing=0.0)
        ranked = np.sort(bids, axis=0)
        turns = np.arange(1, len(bids) + 1)
        closed_form = int((turns * ranked.sum(1) <= budget).sum())
        assert by_the_rules(bids, budget)[2] == closed_form
        take_up = max_min_fair(bids, budget).take_up
        assert closed_form <= take_up.min() <= take_up.max() <= closed_form + 1
        assert gmm_fair(bids, budget).take_up.min() >= closed_form


def test_tasks_differ_by_at_most_one_user_while_there_are_bidders():
    apart = []
    for seed in range(400):
        bids, budget = instance(seed, missing=0.0)
        take_up = max_min_fair(bids, budget).take_up
        apart.append(take_up.max() - take_up.min())
    assert max(apart) <= 1
    assert np.mean(np.less(apart, 1)) > 0.95  # exactly one user apart: nobody had anything left to give


def test_the_last_turn_stays_within_the_budget_and_read_literally_does_not():
    over = []
    for seed in range(400):
        bids, budget = instance(seed)
        award = max_min_fair(bids, budget)
        assert award.paid <= budget * (1 + 1e-12)
        over.append(by_the_rules(bids, budget, literal=True)[1].sum() / budget - 1)
    assert np.mean(np.greater(over, 1e-9)) > 0.1 and max(over) > 0.2


def test_donors_of_the_last_turn_pay_their_winners_less():
    """Three users and 0.9 for each task: the second task's third user is dear, the first has 0.6 to spare."""
    bids = np.array([[0.1, 0.2], [0.1, 0.3], [0.1, 5.0]])
    award = max_min_fair(bids, 1.8)
    assert award.share[:, 0].tolist() == [1, 1, 1]
    assert award.share[:, 1] == pytest.approx([1, 1, 0.6 / 5.0])
    assert award.payment[:, 0] == pytest.approx(0.1)  # all of its surplus went over
    assert award.payment[:, 1] == pytest.approx([0.45, 0.45, 0.6])
    assert by_the_rules(bids, 1.8, literal=True)[1].sum() == pytest.approx(1.8 + 0.6)


def test_the_richest_donors_give_first():
    bids = np.array([[0.1, 0.5, 1.3]])  # 1 for each task: 0.9 and 0.5 to spare, 0.3 lacking
    assert max_min_fair(bids, 3.0).payment.tolist()[0] == pytest.approx([0.7, 1.0, 1.3])
    bids = np.array([[0.1, 0.5, 1.8]])  # 0.8 lacking: both are lowered to a surplus of 0.3
    assert max_min_fair(bids, 3.0).payment.tolist()[0] == pytest.approx([0.4, 0.8, 1.8])


def test_a_task_without_bidders_does_not_block_the_others_and_gives_all_it_has():
    bids = np.array([[0.4, np.nan], [0.5, np.nan], [0.6, np.nan]])
    award = max_min_fair(bids, 1.8)
    assert award.take_up.tolist() == [3, 0] and award.paid == pytest.approx(1.8)
    assert max_min_fair(np.full((3, 2), np.nan), 1.8).paid == 0


def test_a_task_that_has_run_out_of_bidders_keeps_its_winners_and_gives_what_it_can_spare():
    bids = np.array([[0.2, 0.3], [np.nan, 0.3], [np.nan, 0.3], [np.nan, 0.3]])
    award = max_min_fair(bids, 1.4)  # 0.7 each; the first task needs 0.2
    assert award.take_up.tolist() == [1, 4]
    assert award.payment[0, 0] == pytest.approx(0.2) and award.payment[:, 1] == pytest.approx(0.3)
    plenty = max_min_fair(bids, 4.0)
    assert plenty.take_up.tolist() == [1, 4] and plenty.payment[0, 0] == pytest.approx(2.0)


def test_a_task_that_cannot_afford_its_first_user_may_use_its_own_budget():
    bids = np.array([[0.2, 9.0], [0.3, 9.5]])
    published = max_min_fair(bids, 2.0)
    assert published.share.tolist() == [[1, pytest.approx(0.8 / 9)], [0, 0]]
    assert published.leftover == pytest.approx(1.0)  # what the second task had of its own
    own = max_min_fair(bids, 2.0, use_own_budget=True)
    assert own.share[0] == pytest.approx([1, 1.8 / 9]) and own.leftover == pytest.approx(0)
    assert max_min_fair(np.array([[9.0, 9.0]]), 2.0).take_up.tolist() == [0, 0]
    shared = max_min_fair(np.array([[9.0, 9.0]]), 2.0, use_own_budget=True)
    assert shared.share[0] == pytest.approx([1 / 9, 1 / 9])


def lies(costs, user, task):
    others = np.delete(costs[:, task], user)
    points = np.concatenate([others, [0.0, 0.5 * costs[user, task], 2.0, 50.0]])
    return np.concatenate([points * (1 - 1e-6), points + 1e-6])


def outcomes_of_lies():
    """(gain of the liar, fall of the smallest take-up) over many lies in small auctions."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        costs = rng.uniform(0, 1, (int(rng.integers(2, 9)), 2))
        budget = rng.uniform(0.5, 0.5 * len(costs))
        honest = max_min_fair(costs, budget)
        for user in range(len(costs)):
            for task in (0, 1):
                mine = honest.payment[user, task] - costs[user, task] * honest.share[user, task]
                for bid in lies(costs, user, task):
                    bids = costs.copy()
                    bids[user, task] = bid
                    award = max_min_fair(bids, budget)
                    gain = award.payment[user, task] - costs[user, task] * award.share[user, task] - mine
                    found.append((gain, honest.take_up.min() - award.take_up.min()))
    return np.array(found)


def test_one_lie_lowers_the_smallest_take_up_by_at_most_two():
    """[P2] Corollary 9, for lies of every kind; those that pay cost less."""
    found = outcomes_of_lies()
    gain, fall = found.T
    assert len(found) > 5000 and fall.max() <= 2
    paying = gain > 1e-6
    assert paying.sum() > 100  # max-min fair is not exactly truthful
    assert fall[paying].max() <= 1 + 1e-9


def test_sums_exceed_a_budget_less_often_than_maxima_exceed_its_part():
    """[P2] Corollary 10: the first event implies the second."""
    rng = np.random.default_rng(0)
    for law in (rng.exponential, rng.standard_gamma):
        cheapest = law(1.0, (20_000, 3)) if law is rng.exponential else law(0.3, (20_000, 3))
        for budget in (0.5, 1.0, 3.0):
            together, apart = cheapest.sum(1) >= budget, cheapest.max(1) >= budget / 3
            assert not (together & ~apart).any() and together.mean() < apart.mean()
