"""The filling by max-flow: the same as by listing all sets, and beyond that against linear programs."""

import numpy as np
import pytest
from test_targets import program

from conftest import population, round_state
from fedmux.allocation import feasible_targets, targets
from fedmux.allocation.contract import check_draw, planned
from fedmux.allocation.fair_variance import FairVarianceAllocator
from fedmux.allocation.flow_targets import fill_by_flow, route
from fedmux.methods import find


def instance(seed: int, clients: int, tasks: int):
    """Positive weights, jobs, processors, availability and units; often several components, often full."""
    rng = np.random.default_rng(seed)
    able = rng.random((clients, tasks)) < rng.choice([1 / tasks, 0.2, 0.5, 0.9])
    able[rng.integers(clients, size=tasks), np.arange(tasks)] = True
    capacity = rng.integers(1, 5, clients)
    weights = np.maximum(rng.dirichlet(np.full(tasks, rng.choice([0.3, 1.0, 5.0]))), 1e-3)
    units = np.ones(tasks) if rng.random() < 0.5 else rng.uniform(1.0, 4.0, tasks)
    jobs = rng.choice([rng.uniform(0.2, 1.3), 1.0, 0.995]) * capacity.sum()
    return weights / weights.sum(), jobs, capacity, able, units


@pytest.mark.parametrize("slack", [0.0, 0.01, 0.1])
def test_up_to_eight_tasks_it_is_what_listing_all_sets_gives(slack):
    lowered = 0
    for seed in range(250):
        rng = np.random.default_rng([seed, 1])
        weights, jobs, *rest = instance(seed, int(rng.integers(1, 25)), int(rng.integers(1, 9)))
        listed = targets._fill(weights, jobs, *rest, slack)
        assert fill_by_flow(weights, jobs, *rest, slack) == pytest.approx(listed, rel=1e-9)
        lowered += bool((listed < jobs * weights * (1 - 1e-9)).any())
    assert lowered > 100


@pytest.mark.parametrize("tasks", [20, 30, 40])
def test_targets_of_many_tasks_can_be_served_and_none_could_get_more(tasks):
    """Weighted max-min fairness: more for a task means less for one that is no better off."""
    lowered = 0
    for seed in range(4):
        weights, jobs, capacity, able, units = instance(seed, 25, tasks)
        found = fill_by_flow(weights, jobs, capacity, able, units, 0.0)
        assert program(capacity, able, np.zeros(tasks), least=found * units - 1e-9) is not None
        assert found.sum() <= jobs * (1 + 1e-12)
        if found.sum() > jobs * (1 - 1e-9) and (found > jobs * weights * (1 - 1e-9)).all():
            continue
        ratio = found / weights
        full = found.sum() > jobs * (1 - 1e-9)
        for task in np.random.default_rng(seed).permutation(tasks)[:12]:
            if full and ratio[task] > ratio.max() * (1 - 1e-9):
                continue  # stopped by the jobs, not by processors
            keep = np.where(ratio <= ratio[task] * (1 + 1e-9), found * units, 0.0)
            more = program(capacity, able, np.arange(tasks) == task, least=keep - 1e-9)
            assert more == pytest.approx(found[task] * units[task], abs=1e-6)
            lowered += 1
    assert lowered > 5


@pytest.mark.parametrize("tasks", [17, 24, 40])
def test_ratios_that_can_be_served_are_kept_and_slack_is_left_where_needed(tasks):
    rng = np.random.default_rng(tasks)
    able, capacity = rng.random((200, tasks)) < 0.4, rng.integers(1, 4, 200)
    able[:, 0] |= ~able.any(1)
    weights = rng.dirichlet(np.full(tasks, 30.0))
    kept = feasible_targets(weights, 0.8 * capacity.sum(), capacity, able)
    assert kept == pytest.approx(0.8 * capacity.sum() * weights, rel=1e-12)
    able[:, 1] = np.arange(200) < 3  # too few for its share
    able[0] = True
    found = feasible_targets(weights, 0.8 * capacity.sum(), capacity, able)
    assert found[1] == pytest.approx((1 - targets.SLACK) * capacity[:3].sum())
    others = np.arange(tasks) != 1
    assert found[others] / weights[others] == pytest.approx((found / weights)[0], rel=1e-9)
    assert found.sum() == pytest.approx(0.8 * capacity.sum())


def test_a_largest_flow_is_that_of_a_linear_program_and_its_cut_proves_it():
    cut_short = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        weights, jobs, capacity, able, _ = instance(seed, int(rng.integers(2, 20)), int(rng.integers(2, 12)))
        rows = able.any(1)
        room, has = capacity[rows].astype(float), able[rows].T.astype(float)
        flow, cut = route(jobs * weights, room, has)
        assert not flow[has == 0].any() and (flow >= 0).all()
        assert (flow.sum(0) <= room * (1 + 1e-12)).all()
        assert (flow.sum(1) <= jobs * weights * (1 + 1e-12)).all()
        bound = jobs * weights[~cut].sum() + room[has[cut].any(0)].sum()  # any cut bounds any flow
        assert flow.sum() == pytest.approx(bound, rel=1e-10)
        best = program(capacity[rows], able[rows], np.ones(len(weights)), most=jobs * weights)
        assert flow.sum() == pytest.approx(best, rel=1e-7)
        cut_short += cut.any()
    assert cut_short > 30


@pytest.mark.parametrize("jobs", [20.0, 150.0, 1000.0])
def test_fairvr_plans_for_24_tasks(jobs):
    people = population(clients=120, tasks=24, seed=1)
    state = round_state(people, jobs=jobs)
    allocator = FairVarianceAllocator(3.0, "loss", 1e-3, "independent")
    plan = planned(allocator, state)
    check_draw(plan, plan.draw(state.rng()), state, "test")
    assert people.processors @ plan.probability == pytest.approx(allocator.fair.targets, rel=1e-6)
    assert (allocator.fair.targets > 0).all() and (plan.probability[people.available] > 0).all()
    most = min(jobs, people.total_processors)
    assert (1 - targets.SLACK) * most <= allocator.fair.targets.sum() <= most * (1 + 1e-12)
    find("mmfl-fairvr")().check(24)
