"""MIFA's memory and SCAFFOLD's control variates, in numbers."""

import numpy as np
import pytest
import torch

from conftest import population, round_state
from fedmux.aggregation import Unbiased
from fedmux.aggregation.low_rank import LowRankStore
from fedmux.aggregation.mifa import Mifa
from fedmux.aggregation.scaffold import Scaffold
from fedmux.aggregation.store import ClientStore
from fedmux.allocation import Fixed, Probabilities
from fedmux.allocation.full import FullAllocator
from fedmux.allocation.random import RandomAllocator, WarmStart
from fedmux.methods.memory import MifaMethod
from fedmux.population import Population
from quadratics import Quadratics
from stepping import NOBODY, full_step, jobs, step

PEOPLE = population(clients=9, tasks=2)
UPDATES = np.random.default_rng(3).normal(1.0, 1.0, (9, 2, 4))


def memory() -> ClientStore:
    return ClientStore("float32", "memory")


def test_mifa_moves_by_everybodys_last_update_including_this_rounds():
    people = Population(np.array([2, 1, 1]), np.array([[10], [30], [60]]), np.ones((3, 1), bool))
    state = round_state(people)
    aggregator = Mifa(memory())
    updates = np.array([[[10.0]], [[20.0]], [[30.0]]])
    # Probabilities and multiplicity do not matter, and those never seen count as zero.
    assert step(aggregator, state, jobs((0, 0, 2, 0.3, 2)), updates)[0] == pytest.approx([0.1 * 10])
    assert aggregator.step_sizes() == pytest.approx([0.1])
    assert step(aggregator, state, jobs((1, 0, 1, 0.9, 1)), updates)[0] == pytest.approx(
        [0.1 * 10 + 0.3 * 20]
    )
    assert step(aggregator, state, NOBODY, updates)[0] == pytest.approx([7.0])
    assert step(aggregator, state, jobs((0, 0, 1, 0.3, 2)), -updates)[0] == pytest.approx([-1 + 6])
    assert step(aggregator, state, jobs((2, 0, 1, 0.5, 1)), updates)[0] == pytest.approx([-1 + 6 + 18])
    assert aggregator.step_sizes() == pytest.approx([1.0])


def test_mifa_is_the_full_step_once_everybody_was_seen():
    aggregator = Mifa(memory())
    state = round_state(PEOPLE)
    everybody = FullAllocator().plan(state).draw(state.rng())
    assert step(aggregator, state, everybody, UPDATES) == pytest.approx(full_step(state, UPDATES), rel=1e-6)
    assert step(aggregator, state, NOBODY, UPDATES) == pytest.approx(full_step(state, UPDATES), rel=1e-6)


def test_a_warm_start_is_one_round_of_full_participation_then_random():
    allocator = MifaMethod(warm_start=True).allocator()
    assert isinstance(allocator, WarmStart)
    first, second = (allocator.plan(round_state(PEOPLE, round=number)) for number in (0, 1))
    assert isinstance(first, Fixed) and len(first.client) == PEOPLE.available.sum()
    assert isinstance(second, Probabilities)
    wanted = RandomAllocator("processors").plan(round_state(PEOPLE, round=1))
    assert (second.probability == wanted.probability).all()
    cold = MifaMethod().allocator().plan(round_state(PEOPLE))
    assert isinstance(cold, Probabilities)


def variates(aggregator: Scaffold) -> np.ndarray:
    """c_i of each pair (N x S x P)."""
    clients = np.arange(PEOPLE.clients)
    return np.stack([aggregator.stale(s, clients).double().numpy() for s in range(PEOPLE.tasks)], axis=1)


def test_variates_follow_their_rule_and_the_servers_is_their_weighted_sum():
    aggregator = Scaffold(memory())
    rates, steps = np.array([0.1, 0.02]), 7
    own = np.zeros(UPDATES.shape)
    rng = np.random.default_rng(0)
    several = False
    for number in range(12):
        state = round_state(PEOPLE, round=number, learning_rates=rates)
        assignment = RandomAllocator("processors").plan(state).draw(state.rng())
        updates = UPDATES + rng.normal(0, 1, UPDATES.shape)
        server = np.einsum("is,isp->sp", PEOPLE.shares, own)
        moved = step(aggregator, state, assignment, updates, steps)
        assert moved == pytest.approx(step(Unbiased(), state, assignment, updates), rel=1e-6)  # Eq. 3
        for task in range(2):
            assert aggregator.server[task].numpy() == pytest.approx(server[task], rel=1e-4, abs=1e-5)
        drawn = assignment.client, assignment.task
        new = (
            own[drawn] - server[assignment.task] + updates[drawn] / (steps * rates[assignment.task])[:, None]
        )
        own[drawn] = new  # c_i+ = c_i - c + G / (K eta), once however many processors
        assert variates(aggregator) == pytest.approx(own, rel=1e-4, abs=1e-4)
        several = several or bool((assignment.count > 1).any())
    assert several


def test_a_client_is_sent_what_corrects_its_gradient():
    aggregator = Scaffold(memory())
    state = round_state(PEOPLE)
    everybody = FullAllocator().plan(state).draw(state.rng())
    step(aggregator, state, everybody, UPDATES)
    own = variates(aggregator)
    step(aggregator, round_state(PEOPLE, round=1), NOBODY, UPDATES)  # so that a next round has begun
    server = np.einsum("is,isp->sp", PEOPLE.shares, own)
    gradient, nothing = torch.arange(4.0), torch.zeros(4)
    for client, task in ((0, 0), (4, 1), (8, 0)):  # the last never trains: its variate is 0
        correction = aggregator.corrections(task, np.array([client]))[0]
        assert correction.numpy() == pytest.approx(server[task] - own[client, task], rel=1e-5, abs=1e-6)
        stepped = aggregator.local_rule.gradient(gradient, nothing, nothing, correction)
        assert torch.equal(stepped, gradient + correction)


def heterogeneous(seed: int = 0) -> Quadratics:
    """Curvatures and optima that differ, so that local steps drift."""
    people = population(clients=10, tasks=2, seed=seed)
    rng = np.random.default_rng(seed)
    shape = (10, 2, 3)
    return Quadratics(people, rng.uniform(0.2, 2.0, shape), rng.normal(0, 3, shape), rate=0.1, steps=5)


def test_scaffold_reaches_the_optimum_that_local_steps_alone_miss():
    toy = heterogeneous()
    scale = (toy.optimum**2).sum(1)
    plain = toy.errors(FullAllocator(), Unbiased(), 200, jobs=1)
    corrected = toy.errors(FullAllocator(), Scaffold(memory()), 200, jobs=1)
    assert (plain[-1] > 1e-4 * scale).all()  # drift
    assert (corrected[-1] < 1e-9 * scale).all()


def test_scaffold_converges_with_partial_participation():
    toy = heterogeneous(1)
    jobs = 0.5 * toy.people.total_processors
    plain = toy.errors(RandomAllocator("processors"), Unbiased(), 600, jobs)[-100:].mean()
    corrected = toy.errors(RandomAllocator("processors"), Scaffold(memory()), 600, jobs)[-100:].mean()
    assert corrected < 0.01 * plain


def test_scaffold_of_low_rank_removes_most_of_the_drift_of_clients_that_come_in_kinds():
    people, rng = population(clients=20, tasks=1), np.random.default_rng(0)
    kind = rng.integers(0, 4, 20)
    optimum = rng.normal(0, 3, (4, 1, 40))[kind] + rng.normal(0, 1, (20, 1, 40))
    toy = Quadratics(people, rng.uniform(0.2, 2.0, (4, 1, 40))[kind], optimum, rate=0.1, steps=5)
    plain, two, eight = (
        toy.errors(FullAllocator(), aggregator, 100, jobs=1)[-1]
        for aggregator in (
            Unbiased(),
            Scaffold(LowRankStore(2, "float32")),
            Scaffold(LowRankStore(8, "float32")),
        )
    )
    assert two < 0.7 * plain and eight < 0.01 * plain
