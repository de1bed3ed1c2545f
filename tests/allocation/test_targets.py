"""Fair targets lowered to what processors can serve: against linear programs; and FairVR in a run."""

import numpy as np
import pytest
from scipy.optimize import linprog

import fedmux
from conftest import experiment_of, population, round_state, table
from fedmux.allocation import Signals, fair_probabilities, fair_shares, feasible_targets, targets
from fedmux.allocation.fair_variance import FairVarianceAllocator
from fedmux.population import Population
from fedmux.training.assembly import assemble

SLACK = targets.SLACK


def instance(seed: int):
    """Weights, jobs, processors and availability; some clients without a processor or without a task."""
    rng = np.random.default_rng(seed)
    clients, tasks = int(rng.integers(1, 12)), int(rng.integers(1, 6))
    available = rng.random((clients, tasks)) < rng.choice([0.2, 0.5, 0.9])
    capacity = rng.integers(0, 4, clients)
    weights = rng.dirichlet(np.full(tasks, rng.choice([0.5, 5.0])))
    weights = np.where(weights < 1e-3, 0.0, weights)
    return weights / weights.sum(), rng.uniform(0.2, 1.3) * capacity.sum(), capacity, available


def program(capacity, available, goal, least=None, most=None, total=None):
    """Maximise goal . m over the jobs m_s that processors can serve; the value, or None if it cannot be done.

    Variables: what each client gives to each task, sum_s x_is <= B_i.
    """
    clients, tasks = available.shape
    rows = np.kron(np.eye(clients), np.ones(tasks))
    columns = np.kron(np.ones(clients), np.eye(tasks))
    upper, limit = [rows], [capacity]
    for sign, bounds in ((-1, least), (1, most)):
        if bounds is not None:
            upper.append(sign * columns)
            limit.append(sign * np.asarray(bounds))
    if total is not None:
        upper.append(np.ones((1, clients * tasks)))
        limit.append(np.array([total]))
    bounds = [(0, None if can else 0) for can in available.ravel()]
    found = linprog(
        -np.tile(np.asarray(goal, float), clients), np.vstack(upper), np.concatenate(limit), bounds=bounds
    )
    return -found.fun if found.status == 0 else None


def wanted_tasks(weights, capacity, available):
    return (weights > 0) & (available & (capacity > 0)[:, None]).any(0)


@pytest.fixture(params=[0.0, SLACK], ids=["exact", "slack"])
def slack(request, monkeypatch):
    monkeypatch.setattr(targets, "SLACK", request.param)
    return request.param


def test_targets_can_be_served_and_place_as_many_jobs_as_can_be(slack):
    for seed in range(100):
        weights, jobs, capacity, available = instance(seed)
        found = feasible_targets(weights, jobs, capacity, available)
        wanted = wanted_tasks(weights, capacity, available)
        assert not found[~wanted].any() and (found[wanted] > 0).all()
        assert program(capacity, available, np.zeros(len(found)), least=found - 1e-9) is not None
        flow = program(capacity, available, np.ones(len(found)), most=np.where(wanted, 1e9, 0.0))
        most = min(jobs, flow)
        assert most * (1 - slack) - 1e-9 <= found.sum() <= most + 1e-9


def test_ratios_that_can_be_served_are_kept_exactly(slack):
    kept = 0
    for seed in range(100):
        weights, jobs, capacity, available = instance(seed)
        asked = jobs * weights
        if program(capacity, available, np.zeros(len(weights)), least=asked / (1 - slack) + 1e-9) is not None:
            assert feasible_targets(weights, jobs, capacity, available) == pytest.approx(asked, rel=1e-12)
            kept += 1
    assert kept > 20


def test_no_task_can_get_more_without_one_that_is_worse_off_getting_less(monkeypatch):
    """Weighted max-min fairness: m_s / w_s is what is shared out."""
    monkeypatch.setattr(targets, "SLACK", 0.0)
    lowered = 0
    for seed in range(100):
        weights, jobs, capacity, available = instance(seed)
        found = feasible_targets(weights, jobs, capacity, available)
        ratio = np.divide(found, weights, out=np.full(len(weights), np.inf), where=weights > 0)
        for task in np.flatnonzero(found):
            keep = np.where(ratio <= ratio[task] * (1 + 1e-9), found, 0.0)
            more = program(capacity, available, np.arange(len(found)) == task, least=keep - 1e-10, total=jobs)
            assert more == pytest.approx(found[task], abs=1e-7)
            lowered += found[task] < jobs * weights[task] * (1 - 1e-6)
    assert lowered > 20


def test_a_set_with_clients_that_also_serve_others_is_not_quite_filled():
    available = np.array([[True, True], [False, True]])
    found = feasible_targets(np.array([0.9, 0.1]), 2.0, np.ones(2, int), available)
    assert found == pytest.approx([1 - SLACK, 1 + SLACK])  # the first client keeps something for task 1
    assert (fair_probabilities(np.ones((2, 2)), np.ones(2, int), found, available=available)[0] > 0).all()
    apart = np.array([[True, False], [False, True]])
    assert feasible_targets(np.array([0.9, 0.1]), 2.0, np.ones(2, int), apart) == pytest.approx([1, 1])


def test_one_client_among_many_keeps_a_set_open():
    """However small its part is: at 1 in 200,001 the set's processors must not be filled to the last."""
    available = np.zeros((200_101, 3), bool)
    available[:200_001, 0] = True
    available[200_000:, 1] = True
    available[200_001:, 2] = True
    weights = np.array([0.999, 0.0005, 0.0005])
    found = feasible_targets(weights, 200_101.0, np.ones(200_101, int), available)
    assert found[0] == pytest.approx((1 - SLACK) * 200_001)
    assert found.sum() == pytest.approx(found[0] + 100 + 1 - SLACK, rel=1e-3)


def test_tasks_of_negligible_weight_and_tasks_nobody_can_serve_are_left_out():
    capacity, available = np.array([2, 2, 0]), np.array([[True, True, True, False]] * 2 + [[True] * 4])
    found = feasible_targets(np.array([0.5, 0.2999, 9e-5, 0.2]), 2.0, capacity, available)
    assert not found[2:].any()  # the client that has the last task has no processor
    assert found[:2] == pytest.approx(2.0 * np.array([0.5, 0.2999]) / 0.7999)


def test_nothing_to_serve_means_no_targets():
    capacity, available = np.ones(3, int), np.ones((3, 2), bool)
    half = np.array([0.5, 0.5])
    assert not feasible_targets(half, 0.0, capacity, available).any()
    assert not feasible_targets(half, 2.0, 0 * capacity, available).any()
    assert not feasible_targets(half, 2.0, capacity, ~available).any()
    assert feasible_targets(half, 99.0, capacity, available) == pytest.approx([1.5, 1.5])


@pytest.mark.parametrize(
    ("weights", "jobs", "says"),
    [
        ([0.5, np.nan], 1.0, "weights"),
        ([1.5, -0.5], 1.0, "weights"),
        ([0.5, 0.5], -1.0, "jobs"),
        ([0.5, 0.5], np.nan, "jobs"),
    ],
)
def test_wishes_that_are_none_are_refused(weights, jobs, says):
    with pytest.raises(ValueError, match=says):
        feasible_targets(np.array(weights), jobs, np.ones(2, int), np.ones((2, 2), bool))


def test_a_job_that_takes_more_of_a_processor_leaves_room_for_fewer():
    capacity, available = np.array([6]), np.ones((1, 2), bool)
    half, units = np.array([0.5, 0.5]), np.array([1.0, 3.0])
    assert feasible_targets(half, 3.0, capacity, available, units=units) == pytest.approx([1.5, 1.5])
    assert feasible_targets(half, 9.0, capacity, available, units=units) == pytest.approx([1.5, 1.5])
    assert feasible_targets(half, 9.0, capacity, available) == pytest.approx([3.0, 3.0])


def test_loads_can_be_served_and_fill_what_there_is(slack):
    lowered = 0
    for seed in range(60):
        weights, jobs, capacity, available = instance(seed)
        units = np.random.default_rng(seed).choice([1.0, 1.5, 4.0], len(weights))
        found = feasible_targets(weights, jobs, capacity, available, units=units)
        wanted = wanted_tasks(weights, capacity, available)
        assert program(capacity, available, np.zeros(len(found)), least=found * units - 1e-9) is not None
        if found.sum() < jobs * (1 - 1e-9):
            flow = program(capacity, available, np.ones(len(found)), most=np.where(wanted, 1e9, 0.0))
            assert flow * (1 - slack) - 1e-9 <= units @ found <= flow + 1e-9
            lowered += 1
        plain = feasible_targets(weights, jobs, capacity, available)
        ones = feasible_targets(weights, jobs, capacity, available, units=np.ones(len(weights)))
        assert (plain == ones).all()
    assert lowered > 20


@pytest.mark.parametrize("units", [[1.0], [1.0, 0.5], [1.0, np.nan], [1.0, np.inf]])
def test_units_that_are_none_are_refused(units):
    with pytest.raises(ValueError, match="units must be one number of at least 1 for each task"):
        feasible_targets(np.ones(2) / 2, 1.0, np.ones(2, int), np.ones((2, 2), bool), units=np.array(units))


PEOPLE = population(clients=9, tasks=3)


@pytest.mark.parametrize(("measure", "alpha"), [("loss", 3.0), ("error", 2.0), ("loss", 1.0)])
def test_expected_jobs_follow_the_loss_or_the_error_rate(measure, alpha):
    state = round_state(PEOPLE, jobs=2.0)
    losses = np.nansum(PEOPLE.shares * np.nan_to_num(state.signals.losses), axis=0)
    shares = fair_shares(losses if measure == "loss" else 1 - state.accuracies, alpha)
    allocator = FairVarianceAllocator(alpha, measure, 1e-3, "independent")
    plan = allocator.plan(state)
    assert plan.processors @ plan.probability == pytest.approx(2.0 * shares, rel=1e-6)
    notes = allocator.notes()
    assert notes["wanted"] == pytest.approx(2 * shares) and notes["targets"] == pytest.approx(2 * shares)
    assert notes["lowered"] is False


def test_scores_are_those_of_lvr_with_a_floor():
    state = round_state(PEOPLE, jobs=2.0)
    plan = FairVarianceAllocator(3.0, "loss", 0.2, "independent").plan(state)
    scores = PEOPLE.shares * np.nan_to_num(state.signals.losses) / np.maximum(PEOPLE.capacity, 1)[:, None]
    floored = scores + 0.2 * scores[PEOPLE.available].mean()
    expected = PEOPLE.processors @ plan.probability
    again = fair_probabilities(floored, PEOPLE.capacity, expected, available=PEOPLE.available)
    assert plan.probability == pytest.approx(again, rel=1e-6)


def test_without_any_loss_jobs_are_shared_evenly():
    zero = round_state(PEOPLE, jobs=3.0, signals=Signals(losses=np.where(PEOPLE.available, 0.0, np.nan)))
    plan = FairVarianceAllocator(3.0, "loss", 1e-3, "independent").plan(zero)
    assert PEOPLE.processors @ plan.probability == pytest.approx(np.ones(3), rel=1e-6)


def test_a_task_that_nobody_has_this_round_gets_nothing():
    eligible = PEOPLE.eligible.copy()
    eligible[:, 1] = False
    people = Population(PEOPLE.capacity, PEOPLE.sizes, eligible)
    plan = FairVarianceAllocator(3.0, "error", 1e-3, "independent").plan(round_state(people, jobs=2.0))
    assert not plan.probability[:, 1].any()
    assert float((people.processors @ plan.probability).sum()) == pytest.approx(2.0)


def test_a_run_records_what_fairness_asked_for_and_what_could_be_served(tmp_path):
    described = table(method={"name": "mmfl-fairvr", "alpha": 8.0}, rounds=3)
    described["population"] = {"clients": 12, "jobs": 8}
    described["task"][1]["learning_rate"] = 1e-6  # task b stays bad
    bids = tmp_path / "bids.csv"
    bids.write_text("a,b\n" + "0.1,0.1\n" * 3 + "0.1,\n" * 9)  # and three clients only will train it
    described["recruitment"] = {"mechanism": "greedy-within-budget", "budget": 10, "bids": str(bids)}
    experiment = experiment_of(**described)
    assert assemble(experiment).population.available.sum(0).tolist() == [12, 3]
    run = fedmux.run(experiment, tmp_path / "run")
    for metrics in run.metrics[1:]:
        notes = metrics["allocation"]
        assert notes["lowered"] is True
        assert sum(notes["wanted"]) == pytest.approx(8) and notes["wanted"][1] > 3
        assert notes["targets"] == pytest.approx([8 - (1 - SLACK) * 3, (1 - SLACK) * 3])
        jobs = run.allocation[run.allocation["round"] == metrics["round"]]
        of_b = jobs["probability"][jobs["task"] == 1]
        assert (of_b > 0.9).all()  # 2.97 of three processors
