"""Fairness across tasks: alpha-fair shares, FedFairMMFL's allocator, q-FFL's steps, the claim behind both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import fedmux
from conftest import experiment_of, population, round_state, table
from fedmux.aggregation import Average, Unbiased
from fedmux.aggregation.qffl import QFair
from fedmux.allocation import Signals, fair_shares
from fedmux.allocation.fair import FairAllocator, badness, fair_choice, global_loss
from fedmux.allocation.fair_variance import FairVarianceAllocator
from fedmux.allocation.group_allocator import GroupAllocator
from fedmux.allocation.random import uniform_choice
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.methods import find
from fedmux.runs.rounds import OverTasks
from fedmux.runs.scale import scale_of
from fedmux.training.assembly import assemble
from refusals import refused
from stepping import NOBODY, jobs, step

errors_of_tasks = st.lists(st.floats(0, 1), min_size=1, max_size=6).map(np.array)


@settings(deadline=None)
@given(errors_of_tasks)
def test_alpha_one_is_uniform_whatever_the_errors(errors):
    assert fair_shares(errors, 1.0) == pytest.approx(np.full(len(errors), 1 / len(errors)))


@settings(deadline=None)
@given(errors_of_tasks, st.floats(1, 50))
def test_shares_are_a_distribution_that_grows_with_the_error(errors, alpha):
    shares = fair_shares(errors, alpha)
    assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
    order = np.argsort(errors, kind="stable")
    assert (np.diff(shares[order]) >= -1e-15).all()


def test_shares_are_the_power_of_the_error_over_their_sum():
    errors = np.array([0.1, 0.5, 0.4])
    assert fair_shares(errors, 3.0) == pytest.approx(errors**2 / (errors**2).sum(), rel=1e-14)
    assert fair_shares(errors, 1.5) == pytest.approx(errors**0.5 / (errors**0.5).sum(), rel=1e-14)


def test_clients_go_where_the_error_is_large_not_where_the_accuracy_is():
    accuracy = np.array([0.9, 0.5])
    assert fair_shares(1 - accuracy, 3.0) == pytest.approx([0.04, 0.96], abs=2e-3)
    assert fair_shares(accuracy, 3.0) == pytest.approx([0.76, 0.24], abs=5e-3)  # as Algorithm 1 is printed


@pytest.mark.parametrize("alpha", [1e6, 1e300, np.inf])
def test_a_large_alpha_sends_everybody_to_the_worst_task_and_shares_ties(alpha):
    assert fair_shares(np.array([0.3, 0.9, 0.2]), alpha) == pytest.approx([0, 1, 0])
    assert fair_shares(np.array([0.9, 0.1, 0.9]), alpha) == pytest.approx([0.5, 0, 0.5])
    assert fair_shares(np.array([1e-300, 1e-301]), alpha) == pytest.approx([1, 0])


def test_the_limit_of_a_growing_alpha_is_that_of_infinity():
    errors, distance = np.array([0.3, 0.5, 0.5, 0.2]), []
    for alpha in (2, 8, 32, 128):
        distance.append(np.abs(fair_shares(errors, alpha) - fair_shares(errors, np.inf)).max())
    assert distance == sorted(distance, reverse=True) and distance[-1] < 1e-12


def test_a_task_without_error_gets_nothing_unless_there_is_no_other():
    assert fair_shares(np.array([0.0, 0.2, 0.2]), 2.0) == pytest.approx([0, 0.5, 0.5])
    assert fair_shares(np.zeros(4), 3.0) == pytest.approx(np.full(4, 0.25))
    assert fair_shares(np.zeros(4), np.inf) == pytest.approx(np.full(4, 0.25))


@settings(deadline=None)
@given(
    st.lists(st.floats(1e-6, 1), min_size=1, max_size=6).map(np.array), st.floats(1, 20), st.floats(-12, 12)
)
def test_only_ratios_of_errors_matter(errors, alpha, exponent):
    assert fair_shares(10.0**exponent * errors, alpha) == pytest.approx(fair_shares(errors, alpha), abs=1e-11)


@pytest.mark.parametrize("alpha", [0.99, 0.0, -3.0, np.nan])
def test_an_alpha_below_one_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be at least 1"):
        fair_shares(np.array([0.5, 0.5]), alpha)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e-9])
def test_an_error_that_is_no_error_is_refused(bad):
    with pytest.raises(ValueError, match="errors must be finite"):
        fair_shares(np.array([0.5, bad]), 2.0)


@pytest.mark.parametrize("alpha", [1.0, 3.0, 1e9, np.inf])
def test_clients_choose_among_their_own_tasks_only(alpha):
    errors = np.array([0.4, 0.0, 0.2])
    available = np.array([[1, 1, 1], [1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 0, 0]], bool)
    choice = fair_choice(errors, alpha, available)
    assert not choice[~available].any()
    assert choice.sum(1) == pytest.approx([1, 1, 1, 1, 0])
    for own, row in zip(available[:3], choice[:3]):
        assert row[own] == pytest.approx(fair_shares(errors[own], alpha))
    assert choice[3] == pytest.approx([0, 1, 0])  # its only task, though that has no error


PEOPLE = population(clients=9, tasks=3)


@pytest.mark.parametrize("measure", ["error", "loss"])
@pytest.mark.parametrize("participation", ["clients", "processors"])
def test_the_first_round_is_uniform_over_ones_own_tasks(measure, participation):
    plan = FairAllocator(3.0, measure, participation).plan(round_state(PEOPLE, round=0))
    some = plan.probability.sum(1) > 0
    wanted = uniform_choice(PEOPLE.available)[some]
    assert plan.probability[some] / plan.probability[some].sum(1, keepdims=True) == pytest.approx(wanted)


@pytest.mark.parametrize("participation", ["clients", "processors"])
def test_later_rounds_follow_the_error_rate_or_the_loss(participation):
    state = round_state(PEOPLE, round=1)
    loss = [
        np.average(state.signals.losses[own, task], weights=PEOPLE.sizes[own, task])
        for task, own in enumerate(PEOPLE.available.T)
    ]
    for measure, bad in (("error", 1 - state.accuracies), ("loss", np.array(loss))):
        allocator = FairAllocator(4.0, measure, participation)
        plan = allocator.plan(state)
        active = plan.probability.sum(1)
        wanted = active[:, None] * fair_choice(bad, 4.0, PEOPLE.available)
        assert plan.probability == pytest.approx(wanted)
        assert allocator.needs == {"accuracy" if measure == "error" else "loss"}
        takes_part = plan.processors > 0
        assert np.ptp(active[takes_part]) < 1e-12  # who is active does not depend on the tasks
        assert float(plan.processors @ active) == pytest.approx(4)


def test_accuracies_above_one_count_as_no_error():
    state = round_state(PEOPLE, round=1, accuracies=np.array([1.0 + 1e-9, 0.5, 0.5]))
    plan = FairAllocator(3.0, "error", "processors").plan(state)
    only = PEOPLE.available[:, 0] & ~PEOPLE.available[:, 1:].any(1)
    assert not plan.probability[~only, 0].any()


def test_the_loss_of_a_task_is_the_mean_over_the_points_of_those_who_reported():
    losses = np.where(PEOPLE.available, 2.0, np.nan)
    losses[0, 0] = np.nan  # one does not report
    losses[1] = np.where(PEOPLE.available[1], 5.0, np.nan)
    found = global_loss(round_state(PEOPLE, signals=Signals(losses=losses)))
    own = PEOPLE.available & ~np.isnan(losses)
    wanted = [np.average(losses[own[:, s], s], weights=PEOPLE.sizes[own[:, s], s]) for s in range(3)]
    assert found == pytest.approx(wanted)
    nobody = round_state(PEOPLE, signals=Signals(losses=np.full(losses.shape, np.nan)))
    assert np.isnan(global_loss(nobody)).all()  # not 0: that would be perfect


FAMILIES = {
    "exponential": lambda x, a, k: a * np.exp(-k * x),
    "hyperbolic": lambda x, a, k: a / (1 + k * x),
    "root": lambda x, a, k: a * (k - np.sqrt(x + 1e-9)),
    "linear": lambda x, a, k: a * (k - x),
    "shrinking": lambda x, a, k: a * (1.05 - x) ** k,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_least_sum_of_squares_varies_less_over_tasks_than_the_least_sum(family):
    """[P2] Lemma 1: the tasks share an effort of 1, and each one's error falls with the effort it gets."""
    smaller = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        tasks = int(rng.integers(2, 5))
        a, k = rng.uniform(0.3, 2.0, tasks), rng.uniform(1.1, 4.0, tasks)
        left, right = (_errors_at_least_power(FAMILIES[family], a, k, power) for power in (2, 1))
        assert (right**2).sum() >= (left**2).sum() - 1e-9 and left.sum() >= right.sum() - 1e-9
        variances = [OverTasks.of(errors).variance for errors in (left, right)]
        assert variances[0] <= variances[1] + 1e-7
        smaller += variances[0] < variances[1] - 1e-4
    assert smaller >= 2  # and not by rounding only


def _errors_at_least_power(f, a, k, power) -> np.ndarray:
    """f at the minimum of sum f^power over the simplex, from several starts."""
    starts = [np.full(len(a), 1 / len(a)), *np.eye(len(a))]
    found = [
        minimize(
            lambda x: (f(np.clip(x, 0, 1), a, k) ** power).sum(),
            start,
            bounds=[(0, 1)] * len(a),
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            options={"ftol": 1e-12, "maxiter": 300},
        )
        for start in starts
    ]
    best = min((one for one in found if abs(one.x.sum() - 1) < 1e-9), key=lambda one: one.fun)
    return f(np.clip(best.x, 0, 1), a, k)


def round_of_two(q, inner=None, losses=(2.0, 1.0), scale=1.0):
    """The step of task 0, its plain step, and phi; clients 0 and 1 train it, nobody trains the others."""
    rates = np.array([0.5, 0.1, 0.1])
    everybody = np.full(PEOPLE.sizes.shape, np.nan)
    everybody[:2, 0] = losses
    state = round_state(PEOPLE, signals=Signals(losses=everybody), learning_rates=rates)
    updates = scale * np.random.default_rng(0).normal(size=(9, 3, 4))
    assignment = jobs((0, 0, 1, 0.5, 1), (1, 0, 1, 0.25, 1))
    aggregator = QFair(inner or Average("data"), q)
    moved = step(aggregator, state, assignment, updates)
    plain = step(inner or Average("data"), state, assignment, updates)
    return moved, plain, aggregator


@pytest.mark.parametrize("inner", [Average("data"), Average("equal"), Unbiased()])
def test_q_zero_is_the_inner_rule(inner):
    for losses in ((2.0, 1.0), (0.0, 0.0)):
        moved, plain, aggregator = round_of_two(0.0, inner, losses)
        assert moved == pytest.approx(plain) and plain[0].any() and not plain[1:].any()
        assert aggregator.step_sizes() == pytest.approx(inner.step_sizes())


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0, 5.0])
def test_the_factor_is_the_step_of_q_ffl_written_without_powers(q):
    moved, plain, aggregator = round_of_two(q)
    sizes = PEOPLE.sizes[:2, 0]
    loss, lipschitz = np.average([2.0, 1.0], weights=sizes), 1 / 0.5
    gradient = lipschitz * plain[0]
    bound = q * loss ** (q - 1) * (gradient**2).sum() + lipschitz * loss**q
    assert moved[0] == pytest.approx(loss**q * gradient / bound, rel=1e-12)
    assert aggregator.factor(0) == pytest.approx(loss / (loss + q * (plain[0] ** 2).sum() / 0.5), rel=1e-12)
    assert aggregator.step_sizes() == pytest.approx([aggregator.factor(0), 0, 0])


def test_a_stronger_q_moves_less_and_a_larger_loss_moves_more():
    by_q = [np.linalg.norm(round_of_two(q)[0]) for q in (0, 0.1, 1, 10, 100)]
    assert by_q == sorted(by_q, reverse=True) and by_q[-1] < 0.1 * by_q[0]
    by_loss = [np.linalg.norm(round_of_two(2.0, losses=(f, f))[0]) for f in (0.1, 1.0, 10.0)]
    assert by_loss == sorted(by_loss) and by_loss[0] < by_loss[-1]


def test_without_a_loss_there_is_no_move_and_no_division_by_zero():
    assert not round_of_two(2.0, losses=(0.0, 0.0))[0].any()
    assert not round_of_two(2.0, losses=(0.0, 0.0), scale=0.0)[0].any()
    assert not step(QFair(Average("data"), 2.0), round_state(PEOPLE), NOBODY, np.ones((9, 3, 4))).any()


def test_q_ffl_asks_for_losses():
    state = round_state(PEOPLE, signals=Signals())
    with refused("q-FFL", '`learns` the "loss"'):
        step(QFair(Average("data"), 2.0), state, jobs((0, 0, 1, 0.5, 1)), np.ones((9, 3, 4)))


def experiment(method, **changes) -> Experiment:
    return experiment_of(method=method, rounds=3, **changes)


def test_a_run_of_q_ffl_counts_forward_passes_of_those_who_train_only(tmp_path):
    described = experiment("q-ffl")
    setting = assemble(described)
    run = fedmux.run(described, tmp_path / "run")
    jobs_done = run.allocation
    assert len(jobs_done) == 18
    for metrics in run.metrics[1:]:
        of_round = jobs_done[jobs_done["round"] == metrics["round"]]
        for index, task in enumerate(setting.tasks):
            clients = of_round["client"][of_round["task"] == index]
            sizes = setting.population.sizes[clients, index]
            work = metrics["tasks"][task.name]
            assert work["forward_passes"] == task.local.passes(sizes).sum()
            assert work["gradient_steps"] == task.local.steps(sizes).sum()
            assert work["reports"] == len(clients) == work["uploads"]


@pytest.mark.parametrize("alpha", [1.0, np.inf])
def test_an_infinite_alpha_trains_only_the_worst_task_and_survives_a_restart(alpha, tmp_path):
    everybody = {"clients": 12, "jobs": 6}  # has both tasks
    described = experiment({"name": "fedfairmmfl", "alpha": alpha}, population=everybody)
    run = fedmux.run(described, tmp_path / "run")
    assert validated(Experiment, run.table, "run folder") == described
    trained = [set(run.allocation["task"][run.allocation["round"] == number]) for number in (1, 2, 3)]
    assert trained[0] == {0, 1}  # uniform at first
    assert [len(tasks) for tasks in trained[1:]] == ([2, 2] if alpha == 1 else [1, 1])
    assert all(metrics["tasks"]["a"]["forward_passes"] == 0 for metrics in run.metrics[1:])


def reported(losses: np.ndarray, **changes):
    """Round 1, when every client of a task reports the task's loss."""
    every = np.where(PEOPLE.available, np.broadcast_to(losses, PEOPLE.sizes.shape), np.nan)
    return round_state(PEOPLE, round=1, signals=Signals(losses=every), names=("a", "b", "c"), **changes)


def expected(plan) -> np.ndarray:
    return plan.processors @ plan.probability


@pytest.mark.parametrize("unknown", [np.nan, np.inf])
def test_a_task_whose_figure_is_not_known_or_not_finite_is_never_taken_for_perfect(unknown):
    jobs = expected(FairAllocator(3.0, "loss", "processors").plan(reported(np.array([unknown, 0.1, 2.0]))))
    assert jobs[0] > 5 * jobs[1] and jobs[2] > 5 * jobs[1]
    state = round_state(PEOPLE, round=1, accuracies=np.array([unknown, 0.9, 0.1]))
    jobs = expected(FairAllocator(3.0, "error", "processors").plan(state))
    assert jobs[0] > 5 * jobs[1]
    nothing = np.full(3, unknown)
    assert (badness(reported(nothing), "loss") == 1).all()


def test_a_loss_that_is_not_finite_gets_no_probability_from_fairvr_but_an_error_that_names_it():
    losses = np.where(PEOPLE.available, 1.0, np.nan)
    client = int(np.flatnonzero(PEOPLE.available[:, 1])[0])
    losses[client, 1] = np.nan
    state = round_state(PEOPLE, round=1, signals=Signals(losses=losses))
    with pytest.raises(ValueError, match=rf"score of client {client} for task 1 must be finite"):
        FairVarianceAllocator(3.0, "loss", 1e-3, "independent").plan(state)


def test_negative_losses_are_refused_where_fairness_compares_sizes():
    state = reported(np.array([-1.0, 0.1, 2.0]))
    allocators = [
        FairAllocator(3.0, "loss", "clients"),
        FairVarianceAllocator(3.0, "loss", 1e-3, "independent"),
    ]
    for allocator in allocators:
        with refused(('task "a"', "loss", "-1"), "add a constant"):
            allocator.plan(state)
    aggregator = QFair(Average("data"), 2.0)
    with refused('task "a"', ("negative", "add a constant")):
        step(aggregator, state, jobs((0, 0, 1, 0.5, 1)), np.ones((9, 3, 4)))


def test_an_error_is_what_is_left_to_the_target_however_far_that_is():
    state = round_state(PEOPLE, round=1, accuracies=np.array([0.5, -1.5, 1.25]), names=("a", "b", "c"))
    plan = FairAllocator(2.0, "error", "processors").plan(state)
    row = plan.probability[np.flatnonzero(PEOPLE.available.all(1))[0]]
    assert row / row.sum() == pytest.approx([0.5 / 3, 2.5 / 3, 0])  # beyond its target a task needs nobody


def test_fedfairmmfl_goes_by_loss_where_a_metric_has_no_target_and_says_so():
    method = find("fedfairmmfl")()
    fitted, said = method.fitted({"clothes": scale_of(None), "line": scale_of("my:dice")})
    assert fitted.measure == "loss" and fitted.allocator().needs == {"loss"}
    assert said == (
        'method "fedfairmmfl": fairness is by loss, since the metric of task "line" has no target'
    )
    known = {"clothes": scale_of(None), "line": scale_of("mean-absolute-error")}
    assert method.fitted(known) == (method, "")
    assert method.allocator().needs == {"accuracy"}


@pytest.mark.parametrize("method", ["fedfairmmfl", "mmfl-fairvr"])
def test_an_error_without_a_target_is_refused_when_the_file_is_read(method):
    small = table(method={"name": method, "measure": "error"})
    small["task"][1] |= {"metric": "fedmux.tasks.metrics:accuracy"}
    with refused(('measure = "error"', 'task "b"', 'metrics:accuracy"'), "metric.target"):
        experiment_of(**small)
    small["task"][1] |= {"metric": {"name": "fedmux.tasks.metrics:accuracy", "unit": "%"}}
    assert experiment_of(**small).method.measure == "error"


def test_further_slots_of_groups_go_to_the_largest_loss_also_where_losses_are_negative():
    losses = np.where(PEOPLE.available, [-5.0, -1.0, -3.0], np.nan)
    losses += np.arange(PEOPLE.clients)[:, None] % 4 * 100.0 - 500.0  # four groups
    allocator = GroupAllocator("consistent", 4, False)
    allocator.plan(round_state(PEOPLE, signals=Signals(losses=losses)))
    assert len(allocator.models) == 4 and allocator.models[3] == 1
