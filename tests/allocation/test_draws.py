"""Correlated draws: the same marginals as independent ones, and counts that hardly vary."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmux.allocation.draws import dependent_rounding, systematic
from fedmux.allocation.halving import halving
from fedmux.allocation.plan import Probabilities

BOTH = [systematic, dependent_rounding]
ALL = [*BOTH, halving]
DRAWS = 4000
SIGMAS = 4.5

# Ten processors of six clients; full rows, a sure pair, an impossible task, a client that never trains.
PROBABILITY = np.array(
    [
        [0.5, 0.3, 0.2],  # full
        [0.15, 0.1, 0.3],
        [0.0, 1.0, 0.0],  # sure
        [0.25, 0.0, 0.05],
        [0.0, 0.0, 0.0],
        [0.2, 0.05, 0.4],
    ]
)
PROCESSORS = np.array([1, 2, 1, 3, 1, 2])
EXPECTED = PROCESSORS[:, None] * PROBABILITY
JOBS = float(EXPECTED.sum())


def counts(draw, probability, processors, rng) -> np.ndarray:
    """N x S: processors of each client on each task."""
    client, task = draw(probability, processors, rng)
    assert len(client) == len(task)
    result = np.zeros(probability.shape, np.int64)
    np.add.at(result, (client, task), 1)
    return result


@functools.cache
def many(draw, alone: bool = False) -> np.ndarray:
    """DRAWS x N x S; `alone` makes each processor a client of its own."""
    rng = np.random.default_rng(11)
    owner = np.repeat(np.arange(6), PROCESSORS if alone else 1)
    processors = np.ones(len(owner), int) if alone else PROCESSORS
    return np.stack([counts(draw, PROBABILITY[owner], processors, rng) for _ in range(DRAWS)])


def within(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Whether means over the first axis are what they should be, up to chance."""
    error = values.std(0) / np.sqrt(len(values))
    return np.abs(values.mean(0) - wanted) <= SIGMAS * error + 1e-12


@pytest.mark.parametrize("draw", BOTH)
def test_every_pair_is_drawn_as_often_as_its_probability_says(draw):
    drawn = many(draw)
    assert within(drawn, EXPECTED).all()
    assert not drawn[:, PROBABILITY == 0].any() and (drawn[:, 2, 1] == 1).all()
    assert (drawn[:, 0].sum(1) == 1).all()  # a full row trains something every time
    assert (drawn.sum(2) <= PROCESSORS).all()


@pytest.mark.parametrize("draw", BOTH)
def test_a_processor_gets_at_most_one_task(draw):
    drawn = many(draw, alone=True)
    assert drawn.sum(2).max() == 1
    assert within(drawn, PROBABILITY[np.repeat(np.arange(6), PROCESSORS)]).all()


def test_systematic_draws_round_the_total_up_or_down():
    assert set(many(systematic).sum((1, 2))) == {np.floor(JOBS), np.ceil(JOBS)}


def test_systematic_draws_can_bring_any_two_together():
    rng = np.random.default_rng(0)
    alike = np.full((6, 1), 1 / 3)  # two of six; in a fixed order neighbours would never meet
    drawn = np.array([counts(systematic, alike, np.ones(6, int), rng)[:, 0] for _ in range(600)])
    assert ((drawn.T @ drawn) > 0).all()


def test_dependent_rounding_rounds_every_tasks_expectation_up_or_down():
    drawn, wanted = many(dependent_rounding).sum(1), EXPECTED.sum(0)
    for task in range(3):
        assert set(drawn[:, task]) == {np.floor(wanted[task]), np.ceil(wanted[task])}


def test_within_a_task_dependent_rounding_never_correlates_processors_positively():
    drawn = many(dependent_rounding, alone=True).astype(float)
    owner = np.repeat(np.arange(6), PROCESSORS)
    negative = 0
    for task in range(3):
        p = PROBABILITY[owner, task]
        together = np.einsum("ni,nj->ij", drawn[:, :, task], drawn[:, :, task]) / DRAWS
        error = np.sqrt(together * (1 - together) / DRAWS)  # of the mean of a product of two indicators
        apart = ~np.eye(len(owner), dtype=bool)
        assert (together - np.outer(p, p) <= SIGMAS * error + 1e-12)[apart].all()
        negative += int((together - np.outer(p, p) < -SIGMAS * error)[apart].sum())
    assert negative > 0


def test_dependent_rounding_makes_counts_vary_less_than_independent_draws():
    independent = (EXPECTED * (1 - PROBABILITY)).sum(0)  # of each task's count
    fraction = EXPECTED.sum(0) % 1
    variance = many(dependent_rounding).sum(1).var(0)
    assert variance == pytest.approx(fraction * (1 - fraction), abs=0.02)  # the least that the mean allows
    assert (variance < 0.5 * independent).all()


@pytest.mark.parametrize("draw", BOTH)
def test_the_step_stays_unbiased_and_dependent_rounding_does_not_raise_its_variance(draw):
    rng = np.random.default_rng(3)
    people = 9
    probability = rng.uniform(0.05, 0.5, (people, 2))
    processors = rng.integers(1, 3, people)
    share = rng.dirichlet(np.ones(people), 2).T
    updates = rng.normal(1.0, 0.5, (people, 2, 4))  # clients that largely agree
    wanted = np.einsum("is,isp->sp", share, updates)
    theory = (share**2 / processors[:, None] * (updates**2).sum(2) * (1 / probability - 1)).sum()
    steps = []
    for _ in range(4000):
        weight = counts(draw, probability, processors, rng) * share / (processors[:, None] * probability)
        steps.append(np.einsum("is,isp->sp", weight, updates))
    steps = np.array(steps)
    assert within(steps, wanted).all()
    squares = ((steps - wanted) ** 2).sum((1, 2))
    error = squares.std() / np.sqrt(len(squares))
    if draw is dependent_rounding:
        assert squares.mean() < theory + SIGMAS * error
        assert squares.mean() < 0.95 * theory  # here it is lower, by more than chance
    else:
        assert squares.mean() < 1.25 * theory


edge = st.sampled_from([0.0, 1.0, 0.5, 1 / 3, 0.1, 1e-9, 1 - 1e-9, 0.7])


@st.composite
def tables(draw):
    """Small plans with rows that are empty, full or in between, and awkward numbers in them."""
    clients, tasks = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    cells = st.one_of(edge, st.floats(0, 1))
    p = np.array(draw(st.lists(cells, min_size=clients * tasks, max_size=clients * tasks)))
    p = p.reshape(clients, tasks)
    p[p < 1e-9] = 0.0
    fill = np.array(draw(st.lists(st.booleans(), min_size=clients, max_size=clients)))
    total = p.sum(1, keepdims=True)
    p = np.where((total > 1) | (fill[:, None] & (total > 0)), p / np.maximum(total, 1e-300), p)
    processors = np.array(draw(st.lists(st.integers(0, 3), min_size=clients, max_size=clients)))
    return p, processors


@pytest.mark.parametrize("draw", ALL)
@settings(deadline=None)
@given(table=tables(), seed=st.integers(0, 2**32 - 1))
def test_any_plan_is_drawn_within_its_bounds(draw, table, seed):
    probability, processors = table
    drawn = counts(draw, probability, processors, np.random.default_rng(seed))
    expected = processors[:, None] * probability
    assert (drawn.sum(1) <= processors).all() and not drawn[probability == 0].any()
    assert (
        drawn[probability == 1] == np.broadcast_to(processors[:, None], drawn.shape)[probability == 1]
    ).all()
    full = np.abs(probability.sum(1) - 1) < 1e-12
    assert (drawn.sum(1)[full] == processors[full]).all()
    axis = None if draw is systematic else 0  # each task's number, or only the total
    expected, number = expected.sum(axis), drawn.sum(axis)
    assert ((np.floor(expected - 1e-6) <= number) & (number <= np.ceil(expected + 1e-6))).all()


@pytest.mark.parametrize("draw", ALL)
def test_nobody_to_draw_is_no_draw(draw):
    for probability, processors in ((np.zeros((3, 2)), np.ones(3, int)), (np.ones((3, 1)), np.zeros(3, int))):
        client, task = draw(probability, processors, np.random.default_rng(0))
        assert len(client) == len(task) == 0


@pytest.mark.parametrize("name", ["systematic", "dependent-rounding"])
def test_a_plan_uses_the_draws_it_names_and_repeats_them(name):
    plan = Probabilities(PROBABILITY, PROCESSORS, draws=name)
    draw = dict(zip(["systematic", "dependent-rounding"], BOTH))[name]
    for seed in range(20):
        assignment = plan.draw(np.random.default_rng(seed))
        wanted = counts(draw, PROBABILITY, PROCESSORS, np.random.default_rng(seed))
        drawn = np.zeros_like(wanted)
        drawn[assignment.client, assignment.task] = assignment.count
        assert (drawn == wanted).all()
        assert assignment.expected == pytest.approx(EXPECTED[assignment.client, assignment.task])
