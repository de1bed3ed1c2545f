"""Stale updates as control variates: Eq. 22 by hand, its variance, and the weights of FedStale."""

import numpy as np
import pytest
import torch

from conftest import population, round_state
from fedmux.aggregation import Unbiased, stale
from fedmux.aggregation.stale import PlannedStale, Stale
from fedmux.aggregation.store import ClientStore
from fedmux.allocation import Signals
from fedmux.allocation.random import RandomAllocator
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.population import Population
from refusals import refused
from stepping import NOBODY, assert_mean, full_step, jobs, step, steps_of, variance

PEOPLE = population(clients=9, tasks=2)  # unequal B and n, missing pairs, a client without a processor
RNG = np.random.default_rng(8)
PAST = RNG.normal(1.0, 1.0, (9, 2, 4))
FRESH = PAST + RNG.normal(0.2, 0.6, (9, 2, 4))


def memory() -> ClientStore:
    return ClientStore("float32", "memory")


def everybody(people: Population, p: float = 1.0):
    """Each available pair once, by one of its client's processors."""
    return jobs(*((i, s, 1, p, int(people.capacity[i])) for s, i in zip(*np.nonzero(people.available.T))))


def with_past(aggregator: Stale) -> Stale:
    """Everybody but client 3 has sent once, so that some h are 0."""
    rows = [row for row in zip(*np.nonzero(PEOPLE.available)) if row[0] != 3]
    rows.sort(key=lambda row: (row[1], row[0]))
    sent = jobs(*((int(i), int(s), 1, 0.5, int(PEOPLE.capacity[i])) for i, s in rows))
    step(aggregator, round_state(PEOPLE, betas=np.zeros((9, 2))), sent, PAST)
    return aggregator


def remembered() -> np.ndarray:
    """h after `with_past`."""
    h = np.where(PEOPLE.available[:, :, None], PAST, 0).astype(np.float32).astype(float)
    h[3] = 0
    return h


def test_three_rounds_by_hand():
    people = Population(np.array([3, 1]), np.array([[30], [10]]), np.ones((2, 1), bool))  # d = 3/4, 1/4
    state = round_state(people)
    aggregator = Stale(memory())
    first = np.array([[[4.0, 0.0]], [[0.0, 8.0]]])  # N x S x P
    # Two of client 0's three processors, each with p = 1/2: c = 2 * 3/4 / (3 * 1/2) = 1.
    assert step(aggregator, state, jobs((0, 0, 2, 0.5, 3)), first) == pytest.approx(np.array([[4.0, 0.0]]))
    assert aggregator.step_sizes() == pytest.approx([1.0])
    # Nobody is active and the model still moves, by d_0 h_0; client 0 counts once, not twice.
    assert step(aggregator, state, NOBODY, first) == pytest.approx(np.array([[3.0, 0.0]]))
    # Client 0 again, with p = 1: c = 1/4 on G - h; client 1 for the first time: c = 1/4 / (1/2) on G.
    second = np.array([[[8.0, 4.0]], [[0.0, 8.0]]])
    both = jobs((0, 0, 1, 1.0, 3), (1, 0, 1, 0.5, 1))
    wanted = np.array([3.0, 0.0]) + 0.25 * np.array([4.0, 4.0]) + 0.5 * np.array([0.0, 8.0])
    assert step(aggregator, state, both, second)[0] == pytest.approx(wanted)
    assert step(aggregator, state, NOBODY, second)[0] == pytest.approx(
        0.75 * second[0, 0] + 0.25 * second[1, 0]
    )


@pytest.mark.parametrize(
    "make", [Stale, lambda store: Stale(store, "estimated"), lambda store: Stale(store, 0.4)]
)
def test_the_first_round_is_that_of_inverse_probabilities(make):
    for seed in range(5):
        state = round_state(PEOPLE, seed=seed)
        assignment = RandomAllocator("processors").plan(state).draw(state.rng())
        wanted = step(Unbiased(), state, assignment, FRESH)
        assert step(make(memory()), state, assignment, FRESH) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("beta", [0.6, 1.0])
def test_the_step_is_unbiased_and_its_variance_is_that_of_the_difference(beta):
    state = round_state(PEOPLE, round=1)
    plan = RandomAllocator("processors").plan(state)
    aggregator = with_past(Stale(memory(), beta))
    steps = steps_of(aggregator, state, plan, FRESH, 1500)
    assert_mean(steps, full_step(state, FRESH))
    squares = ((steps - full_step(state, FRESH)) ** 2).sum(2)
    assert_mean(squares, variance(state, plan.probability, FRESH - beta * remembered()))


def test_beta_zero_is_inverse_probabilities_and_beta_one_is_fedvarp():
    one, default, zero = (with_past(Stale(memory(), *beta)) for beta in ([1.0], [], [0.0]))
    for number in range(1, 6):
        state = round_state(PEOPLE, round=number)
        assignment = RandomAllocator("processors").plan(state).draw(state.rng())
        updates = FRESH + number
        plain = step(Unbiased(), state, assignment, updates)
        assert step(zero, state, assignment, updates) == pytest.approx(plain, rel=1e-6)
        moved = step(one, state, assignment, updates)
        assert (step(default, state, assignment, updates) == moved).all()
        assert not np.allclose(moved, plain, rtol=1e-2)


def best_betas(state, probability, updates, h) -> np.ndarray:
    """beta* = sum a <G, h> / sum a ||h||^2 with a = d^2 / B (1 / p - 1), for each task."""
    people = state.population
    a = np.zeros(people.available.shape)
    pairs = people.available
    a[pairs] = (people.shares**2 / np.maximum(people.capacity, 1)[:, None])[pairs] * (
        1 / probability[pairs] - 1
    )
    return (a * (updates * h).sum(2)).sum(0) / (a * (h**2).sum(2)).sum(0)


def test_an_estimated_weight_counts_from_the_next_round_on():
    aggregator, fixed = with_past(Stale(memory(), "estimated")), with_past(Stale(memory(), 1.0))
    state = round_state(PEOPLE, round=1)
    sent = jobs((0, 0, 2, 0.25, int(PEOPLE.capacity[0])), (1, 0, 1, 0.5, int(PEOPLE.capacity[1])))
    # Nothing is known of beta* yet (nobody had sent before), so the weight of this round is still 1 ...
    assert step(aggregator, state, sent, FRESH) == pytest.approx(step(fixed, state, sent, FRESH), rel=1e-6)
    # ... and the next round's is what these two clients told.
    h, d, b = remembered()[:, 0], PEOPLE.shares[:, 0], PEOPLE.capacity
    told = {0: 2 / (b[0] * 0.25) * d[0] ** 2 / b[0] * 3, 1: 1 / (b[1] * 0.5) * d[1] ** 2 / b[1] * 1}
    over = sum(weight * FRESH[i, 0] @ h[i] for i, weight in told.items())
    under = sum(weight * h[i] @ h[i] for i, weight in told.items())
    step(aggregator, state, NOBODY, FRESH)
    assert aggregator.betas[:, 0] == pytest.approx(over / under, rel=1e-6)
    assert aggregator.betas[:, 1] == pytest.approx(1.0)  # nobody told anything about this task
    assert abs(over / under - 1) > 0.01


def test_the_estimated_weight_approaches_the_best_one(monkeypatch):
    monkeypatch.setattr(stale, "MEMORY", 0.995)
    aggregator = with_past(Stale(memory(), "estimated"))
    history = {name: value.clone() for name, value in aggregator.state().items()}
    updates = 0.5 * PAST + np.random.default_rng(8).normal(
        0, 0.3, PAST.shape
    )  # stale updates are twice too large
    state = round_state(PEOPLE, round=1)
    plan = RandomAllocator("processors").plan(state)
    seen = []
    for number in range(1500):  # the same round over and over, only the weight is kept
        aggregator.restore({**history, "learned": aggregator.state()["learned"].clone()})
        step(aggregator, state, plan.draw(np.random.default_rng(number)), updates)
        seen.append(aggregator.betas[0].copy())
    best = best_betas(state, plan.probability, updates, remembered())
    assert seen[0] == pytest.approx([1, 1]) and (np.abs(best - 1) > 0.2).all()
    assert np.mean(seen[500:], axis=0) == pytest.approx(best, abs=0.02)
    assert np.std(seen[500:], axis=0).max() < 0.02  # a running mean, not one round's guess
    spread = [
        variance(state, plan.probability, updates - beta * remembered())
        for beta in (np.c_[best].T[..., None], 1, 0)
    ]
    assert (spread[0] < spread[1]).all() and (spread[0] < spread[2]).all()


def test_a_restored_aggregator_goes_on_the_same():
    kept = with_past(Stale(memory(), "estimated"))
    state = round_state(PEOPLE, round=1)
    plan = RandomAllocator("processors").plan(state)
    step(kept, state, plan.draw(state.rng()), FRESH)
    copy = Stale(memory(), "estimated")
    copy.restore({name: value.clone() for name, value in kept.state().items()})
    for number in range(2, 5):
        state = round_state(PEOPLE, round=number)
        assignment = plan.draw(state.rng())
        moved = step(kept, state, assignment, FRESH * number)
        assert (step(copy, state, assignment, FRESH * number) == moved).all()
        assert (copy.betas == kept.betas).all()
    assert not np.allclose(kept.betas, 1.0)


def projections(h: np.ndarray) -> np.ndarray:
    """<G, h> / ||h||^2 of each pair, 0 while h = 0; NaN where nobody is asked, as clients report them."""
    square = (h**2).sum(2)
    betas = np.divide((FRESH * h).sum(2), square, out=np.zeros(square.shape), where=square > 0)
    return np.where(PEOPLE.available, betas, np.nan)


def test_weights_of_each_client_are_unbiased_and_have_the_least_variance():
    h = remembered()
    betas = projections(h)
    state = round_state(PEOPLE, round=1, betas=betas)
    plan = RandomAllocator("processors").plan(state)
    aggregator = with_past(PlannedStale(memory()))
    steps = steps_of(aggregator, state, plan, FRESH, 1500)
    assert_mean(steps, full_step(state, FRESH))
    left = FRESH - np.nan_to_num(betas)[:, :, None] * h
    theory = variance(state, plan.probability, left)
    assert_mean(((steps - full_step(state, FRESH)) ** 2).sum(2), theory)
    for beta in np.linspace(-0.5, 2.0, 26):
        assert (theory <= variance(state, plan.probability, FRESH - beta * h)).all()
    moved = step(aggregator, state, NOBODY, FRESH)
    assert moved == pytest.approx(np.einsum("is,isp->sp", PEOPLE.shares * np.nan_to_num(betas), h), rel=1e-5)


def test_planned_weights_need_a_plan_that_has_them():
    with refused("stale updates", "set `betas` of fedmux.Probabilities"):
        step(PlannedStale(memory()), round_state(PEOPLE, betas=None), NOBODY, FRESH)


def test_scoring_by_the_difference_beats_scoring_by_the_norm():
    """A score of ||G|| can be worse than uniform for Eq. 22: its variance contains ||G - h||."""
    people = Population(np.ones(20, int), np.full((20, 1), 5), np.ones((20, 1), bool))
    rng = np.random.default_rng(2)
    size = np.where(np.arange(20) < 10, 10.0, 1.0)[:, None, None]
    h = size * rng.normal(0, 1, (20, 1, 3))
    updates = h + rng.normal(0, 1, h.shape) / size  # the largest updates have changed least
    spread = {}
    for name, vectors in (("norm", updates), ("residual", updates - h)):
        norms = np.linalg.norm(vectors, axis=2)
        state = round_state(people, signals=Signals(norms=norms))
        p = VarianceReduced(name, ScoreOptions(floor=0.0, mixing=0.0)).plan(state).probability
        spread[name] = variance(state, p, updates - h).sum()
    uniform = variance(state, RandomAllocator("processors").plan(state).probability, updates - h).sum()
    assert spread["residual"] < 0.8 * uniform < uniform < 0.5 * spread["norm"]


def test_a_store_in_half_precision_still_counts_what_it_holds():
    aggregator = Stale(ClientStore("bfloat16", "memory"))
    state = round_state(PEOPLE)
    step(aggregator, state, everybody(PEOPLE), PAST)
    held = np.stack([aggregator.stale(s, np.arange(9)).double().numpy() for s in range(2)], axis=1)
    assert not np.allclose(held, remembered(), rtol=1e-4) and np.allclose(
        held[:3], PAST[:3] * PEOPLE.available[:3, :, None], rtol=5e-3
    )
    assert step(aggregator, state, NOBODY, FRESH) == pytest.approx(full_step(state, held), rel=1e-5)
    assert aggregator.server_bytes(0) == int(PEOPLE.available[:, 0].sum()) * 4 * 2 + 4 * 8
    assert torch.equal(aggregator.stale(0, np.array([8])), torch.zeros(1, 4))
