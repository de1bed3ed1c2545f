"""GVR and LVR: what a score is, what the variance becomes, and scores that only some clients report."""

import numpy as np
import pytest

import fedmux
from conftest import experiment_of, population, round_state, table
from fedmux.aggregation import Unbiased
from fedmux.allocation import Probabilities, Signals, optimal_probabilities
from fedmux.allocation.lessons import Lessons
from fedmux.allocation.random import RandomAllocator
from fedmux.allocation.variance_reduced import ScoreOptions, VarianceReduced
from fedmux.methods import find
from fedmux.population import Population
from fedmux.training.assembly import assemble
from stepping import assert_mean, full_step, steps_of, variance

PLAIN = ScoreOptions(floor=0.0, mixing=0.0)
PEOPLE = population(clients=9, tasks=3)  # unequal B and n, missing pairs, a client without a processor


def norms_of(people: Population, updates: np.ndarray) -> np.ndarray:
    return np.where(people.available, np.linalg.norm(updates, axis=2), np.nan)


def gvr(state, options: ScoreOptions = PLAIN) -> np.ndarray:
    return VarianceReduced("norm", options).plan(state).probability


def lvr(state, options: ScoreOptions = PLAIN) -> np.ndarray:
    return VarianceReduced("loss", options).plan(state).probability


def test_the_score_of_gvr_is_the_share_times_the_norm_over_processors_and_rate():
    rates = np.array([0.1, 0.5, 0.02])
    state = round_state(PEOPLE, learning_rates=rates)
    scores = np.zeros(PEOPLE.sizes.shape)
    for client, task in zip(*np.nonzero(PEOPLE.available)):
        share = PEOPLE.sizes[client, task] / PEOPLE.sizes[PEOPLE.available[:, task], task].sum()
        scores[client, task] = (
            share * state.signals.norms[client, task] / (PEOPLE.capacity[client] * rates[task])
        )
    wanted = optimal_probabilities(scores, PEOPLE.capacity, 4.0, available=PEOPLE.available)
    assert gvr(state) == pytest.approx(wanted, rel=1e-12)


def test_the_score_of_lvr_is_the_share_times_the_absolute_loss_over_processors():
    state = round_state(PEOPLE)
    scores = PEOPLE.shares * np.abs(state.signals.losses) / np.maximum(PEOPLE.capacity, 1)[:, None]
    wanted = optimal_probabilities(scores, PEOPLE.capacity, 4.0, available=PEOPLE.available)
    assert lvr(state) == pytest.approx(wanted, rel=1e-12)
    signs = np.where(np.arange(3) == 1, -1.0, 1.0)  # a likelihood may be negative
    negative = round_state(PEOPLE, signals=Signals(losses=state.signals.losses * signs))
    assert (lvr(negative) == lvr(state)).all()


def test_the_floor_is_a_fraction_of_the_mean_score():
    state = round_state(PEOPLE)
    scores = VarianceReduced("norm", PLAIN).score(state, state.signals)
    floor = 0.2 * scores[PEOPLE.available].mean()
    wanted = optimal_probabilities(scores, PEOPLE.capacity, 4.0, available=PEOPLE.available, floor=floor)
    assert gvr(state, ScoreOptions(floor=0.2, mixing=0.0)) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("signal", ["norm", "loss"])
def test_a_report_that_is_no_number_is_refused_by_client_and_task(signal):
    state = round_state(PEOPLE)
    values = np.where(PEOPLE.available, 1.0, np.nan)
    values[2, 2] = np.nan
    assert PEOPLE.available[2, 2]
    broken = round_state(PEOPLE, signals=Signals(losses=values, norms=values))
    VarianceReduced(signal, PLAIN).plan(state)
    with pytest.raises(ValueError, match="client 2 for task 2"):
        VarianceReduced(signal, PLAIN).plan(broken)


@pytest.mark.parametrize("allocate", [gvr, lvr])
def test_the_variance_of_the_step_is_the_papers(allocate):
    rng = np.random.default_rng(5)
    updates = rng.normal(0.3, 1.0, (9, 3, 4)) * rng.uniform(0.5, 2.0, (9, 3, 1))
    state = round_state(PEOPLE, signals=Signals(rng.uniform(0.5, 2.0, (9, 3)), norms_of(PEOPLE, updates)))
    plan = Probabilities(allocate(state, ScoreOptions()), PEOPLE.processors)
    steps = steps_of(Unbiased(), state, plan, updates, 5000)
    assert_mean(steps, full_step(state, updates))
    squares = ((steps - full_step(state, updates)) ** 2).sum(2)
    assert_mean(squares, variance(state, plan.probability, updates))  # [P1] Eq. 12, task by task


def test_gvr_has_the_least_variance_and_lvr_reaches_it_when_losses_follow_norms():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        people = population(int(rng.integers(3, 12)), int(rng.integers(1, 5)), seed)
        updates = rng.normal(0, 1, (*people.sizes.shape, 3)) * rng.exponential(1, (*people.sizes.shape, 1))
        norms = norms_of(people, updates)
        settings = {"jobs": float(rng.uniform(0.2, 0.9) * people.total_processors)}
        state = round_state(people, signals=Signals(3.7 * norms, norms), **settings)
        best = variance(state, gvr(state), updates).sum()
        assert variance(state, lvr(state), updates).sum() == pytest.approx(best, rel=1e-9)
        random = RandomAllocator("processors").plan(state).probability
        assert best <= variance(state, random, updates).sum() * (1 + 1e-9)
        for _ in range(3):
            losses = np.where(people.available, rng.exponential(1, norms.shape), np.nan)
            other = lvr(round_state(people, signals=Signals(losses, norms), **settings))
            assert best <= variance(state, other, updates).sum() * (1 + 1e-9)


@pytest.mark.parametrize("mixing", [0.05, 0.3, 1.0])
def test_mixing_bounds_probabilities_from_below_and_costs_at_most_its_share(mixing):
    for seed in range(40):
        people = population(12, 3, seed)
        rng = np.random.default_rng(seed)
        updates = rng.normal(0, 1, (12, 3, 3)) * 10 ** rng.uniform(-4, 0, (12, 3, 1))
        jobs = float(rng.uniform(0.1, 0.95) * people.total_processors)
        state = round_state(people, jobs=jobs, signals=Signals(norms=norms_of(people, updates)))
        p = gvr(state, ScoreOptions(floor=0.0, mixing=mixing))
        own = people.available.sum(1, keepdims=True)
        least = mixing * jobs / (people.total_processors * np.maximum(own, 1))
        assert (p >= np.where(people.available, least, 0) * (1 - 1e-12)).all()
        assert float(people.processors @ p.sum(1)) == pytest.approx(jobs) and (p.sum(1) <= 1 + 1e-9).all()
        if mixing < 1:  # the objective is the variance and a constant, sum d^2 / B ||G||^2
            constant = variance(state, np.full((12, 3), 0.5), updates).sum()
            mixed, best = (variance(state, q, updates).sum() + constant for q in (p, gvr(state)))
            assert best * (1 - 1e-9) <= mixed <= best / (1 - mixing) * (1 + 1e-9)


def test_normalised_scores_give_every_task_the_same_load_while_nobody_is_saturated():
    people = population(30, 3, seed=4)
    scale = np.array([1.0, 100.0, 1e-3])  # tasks whose losses live on different scales
    losses = round_state(people).signals.losses
    state = round_state(people, jobs=2.0, signals=Signals(losses * scale))
    p = lvr(state, ScoreOptions(floor=0.0, mixing=0.0, normalise=True))
    assert p.sum(1).max() < 1
    assert people.processors @ p == pytest.approx(2 / 3)
    plain = people.processors @ lvr(state)
    assert plain[1] > 50 * plain[0] and plain[0] > 50 * plain[2]


def test_normalisation_follows_a_running_mean_of_the_load():
    people = population(30, 3, seed=4)
    losses = round_state(people).signals.losses
    allocator = VarianceReduced("loss", ScoreOptions(floor=0.0, mixing=0.0, normalise=True))
    allocator.plan(round_state(people, jobs=2.0, signals=Signals(losses)))
    doubled = Signals(losses * np.array([2.0, 1.0, 1.0]))
    p = allocator.plan(round_state(people, jobs=2.0, round=1, signals=doubled)).probability
    load = np.array([2 / 1.1, 1.0, 1.0])  # the mean has moved a tenth of the way
    assert people.processors @ p == pytest.approx(2 * load / load.sum())


@pytest.mark.parametrize("jobs", [3.0, 40.0])
def test_tasks_of_different_cost_share_a_budget_in_units_of_cost(jobs):
    costs = np.array([1.0, 6.0, 3.0])
    state = round_state(PEOPLE, jobs=jobs, costs=costs)
    everything = PEOPLE.processors @ gvr(round_state(PEOPLE, jobs=1e9)) @ costs  # all processors busy
    assert PEOPLE.total_processors < 40 < everything
    for mixing in (0.0, 0.05):
        p = gvr(state, ScoreOptions(floor=0.0, mixing=mixing))
        assert (p[PEOPLE.available] > 0).all() and (p.sum(1) <= 1 + 1e-9).all()
        assert float(PEOPLE.processors @ p @ costs) == pytest.approx(jobs, rel=1e-9)


@pytest.mark.parametrize("jobs", [3.0, 9.0, 40.0])
@pytest.mark.parametrize("mixing", [0.0, 0.05, 1.0])
def test_where_jobs_take_more_than_a_processor_no_expected_load_exceeds_the_processors(jobs, mixing):
    units = np.array([1.0, 2.5, 4.0])
    costs = np.array([1.0, 1.0, 2.0])
    for state in (
        round_state(PEOPLE, jobs=jobs, units=units),
        round_state(PEOPLE, jobs=jobs, units=units, costs=costs),
    ):
        p = gvr(state, ScoreOptions(floor=0.0, mixing=mixing))
        assert (p[PEOPLE.available] > 0).all() and not p[~PEOPLE.available].any()
        load = p @ units
        assert (load <= 1 + 1e-12).all() and (jobs < 40 or load[PEOPLE.processors > 0].min() > 0.999)
        assert PEOPLE.processors @ p @ state.costs <= jobs * (1 + 1e-12)
    plain = gvr(round_state(PEOPLE, jobs=jobs), ScoreOptions(floor=0.0, mixing=mixing))
    assert (plain == gvr(round_state(PEOPLE, jobs=jobs, units=np.ones(3)), ScoreOptions(0.0, mixing))).all()
    assert (plain @ units).max() > 1 or jobs < 9


@pytest.mark.parametrize("method", ["mmfl-lvr", "mmfl-fairvr"])
def test_steps_are_unbiased_where_jobs_take_more_than_a_processor(method):
    updates = np.random.default_rng(0).normal(1.0, 1.0, (9, 3, 4))
    state = round_state(PEOPLE, jobs=9.0, units=np.array([1.0, 2.0, 3.5]))
    plan = find(method)().allocator().plan(state)
    assert 0.9 < (plan.probability @ state.units).max() <= 1 + 1e-9
    assert_mean(steps_of(Unbiased(), state, plan, updates, 4000), full_step(state, updates))


@pytest.mark.parametrize("method", ["mmfl-lvr", "mmfl-gvr*", "mmfl-fairvr", "random"])
def test_a_run_follows_the_units_of_its_tasks(method, tmp_path):
    described = table(rounds=2, method=method)
    described["population"] |= {"jobs": 30, "processors": 2}
    described["task"][1]["units"] = 4.0
    run = fedmux.run(experiment_of(**described), tmp_path / "run")
    jobs = [sum(entry["tasks"][name]["jobs"] for entry in run.metrics[1:]) for name in "ab"]
    heavy = run.allocation["probability"][run.allocation["task"] == 1]
    assert (heavy.max() <= 0.25 + 1e-9) == (method != "random")  # random does not weigh units
    assert jobs[0] > jobs[1] or method == "random"


def partial(**options) -> VarianceReduced:
    return VarianceReduced("loss", ScoreOptions(floor=0.0, mixing=0.0, report_share=0.5, **options))


def test_the_first_report_replaces_and_later_ones_are_averaged_in():
    people = population(6, 2, seed=1)
    allocator = partial(memory=0.25)
    first, second = (np.full((6, 2), np.nan) for _ in range(2))
    client, task = (int(index[0]) for index in np.nonzero(people.available))
    first[client, task], second[client, task] = 3.0, 5.0
    weight = people.shares[client, task] / people.capacity[client]
    for losses, wanted in ((first, 3.0), (first * np.nan, 3.0), (second, 0.75 * 3 + 0.25 * 5)):
        allocator.plan(round_state(people, signals=Signals(losses)))
        assert allocator.known[client, task] == pytest.approx(weight * wanted)
        assert np.isnan(allocator.known).sum() == allocator.known.size - 1
    seen = Lessons(np.array([client]), np.array([task]), losses=np.array([5.0]))
    allocator.learn(round_state(people), seen)  # it had reported: not again
    assert allocator.known[client, task] == pytest.approx(weight * 3.5)
    allocator.learn(round_state(people, signals=Signals()), seen)  # it had not: counts the same
    assert allocator.known[client, task] == pytest.approx(weight * (0.75 * 3.5 + 0.25 * 5))


def test_a_client_never_seen_counts_as_the_largest_known():
    people = Population(np.ones(4, int), np.full((4, 2), 10), np.ones((4, 2), bool))
    losses = np.array([[1.0, 4.0], [3.0, np.nan], [np.nan, np.nan], [2.0, 2.0]])
    p = partial().plan(round_state(people, jobs=1.0, signals=Signals(losses))).probability
    guessed = np.array([[1.0, 4.0], [3.0, 4.0], [3.0, 4.0], [2.0, 2.0]])
    assert p == pytest.approx(optimal_probabilities(guessed, np.ones(4, int), 1.0))
    nothing = Signals(np.full((4, 2), np.nan))
    blank = partial().plan(round_state(people, jobs=1.0, signals=nothing)).probability
    assert blank == pytest.approx(1 / 8)  # nobody known: everybody alike


def test_about_the_share_asked_for_reports_and_only_available_pairs():
    people = population(2000, 3, seed=2)
    allocator = VarianceReduced("loss", ScoreOptions(report_share=0.3))
    asked = [allocator.reporters(round_state(people, round=number)) for number in range(2)]
    for each in asked:
        assert not each[~people.available].any()
        clients = each.any(1)[people.processors > 0]
        assert abs(clients.mean() - 0.3) < 4.5 * np.sqrt(0.21 / len(clients))
        assert (each[each.any(1)] == people.available[each.any(1)]).all()  # a client reports all it has
    assert (asked[0] != asked[1]).any()
    assert (VarianceReduced("loss", PLAIN).reporters(round_state(people)) == people.available).all()


def test_steps_from_remembered_scores_are_unbiased():
    rng = np.random.default_rng(0)
    updates = rng.normal(1.0, 1.0, (9, 3, 4))
    allocator = VarianceReduced("loss", ScoreOptions(report_share=0.4))
    for number in range(4):
        state = round_state(PEOPLE, round=number)
        losses = np.where(allocator.reporters(state), rng.uniform(0.01, 5.0, (9, 3)), np.nan)
        state = round_state(PEOPLE, round=number, signals=Signals(losses))
        plan = allocator.plan(state)
    assert np.isnan(allocator.known[PEOPLE.available]).any()  # somebody is still unknown
    assert_mean(steps_of(Unbiased(), state, plan, updates, 4000), full_step(state, updates))


def test_a_restored_allocator_plans_the_same():
    options = ScoreOptions(normalise=True, report_share=0.5)
    allocator = VarianceReduced("norm", options)
    assert allocator.state() == {}
    for number in range(3):
        state = round_state(PEOPLE, round=number)
        norms = np.where(allocator.reporters(state), state.signals.norms, np.nan)
        allocator.plan(round_state(PEOPLE, round=number, signals=Signals(norms=norms)))
    copy = VarianceReduced("norm", options)
    copy.restore({name: value.copy() for name, value in allocator.state().items()})
    state = round_state(PEOPLE, round=3)
    assert set(allocator.state()) == {"known", "load"}
    assert (copy.plan(state).probability == allocator.plan(state).probability).all()
    fresh = VarianceReduced("norm", options).plan(state).probability
    assert not np.allclose(fresh, allocator.plan(state).probability)


@pytest.mark.parametrize("method", ["mmfl-lvr", "mmfl-gvr"])
def test_those_who_train_report_too_and_fewer_reports_cost_less(method, tmp_path, monkeypatch):
    learned = []
    monkeypatch.setattr(VarianceReduced, "learn", lambda self, state, seen: learned.append((state, seen)))

    def run(name: str, **options):
        experiment = experiment_of(rounds=4, method={"name": method, **options})
        return fedmux.run(experiment, tmp_path / name), assemble(experiment).population

    whole, people = run("whole")
    assert not learned  # everybody had reported
    part, _ = run("part", report_share=0.3)
    assert len(learned) == 4
    reports = []
    for number, (state, seen) in enumerate(learned):
        drawn = np.zeros(people.available.shape, bool)
        rows = part.allocation[part.allocation["round"] == number + 1]
        drawn[rows["client"], rows["task"]] = True
        asked = VarianceReduced("loss", ScoreOptions(report_share=0.3)).reporters(state)
        values = seen.losses if method == "mmfl-lvr" else seen.norms
        assert np.isfinite(values).all()
        assert (seen.over_pairs(values, drawn.shape) > 0).tolist() == drawn.tolist()
        # Of those drawn without having been asked, losses come with the update; norms the server sees.
        reports.append(int(((drawn | asked) if method == "mmfl-lvr" else asked).sum()))
    assert [sum(e["tasks"][t]["reports"] for t in "ab") for e in part.metrics[1:]] == reports
    saved = "forward_passes" if method == "mmfl-lvr" else "gradient_steps"
    for cost in (saved, "reports"):
        assert 0 < part.summary["totals"][cost] < 0.8 * whole.summary["totals"][cost]


def test_a_task_that_was_forgotten_or_is_away_takes_up_its_whole_load_again():
    """Its running mean does not sink while it is away, which would make it ten times as important later."""
    people = population(clients=9, tasks=3)
    away = Population(people.capacity, people.sizes, people.eligible & np.array([True, True, False]))
    allocator = VarianceReduced("loss", ScoreOptions(normalise=True))
    allocator.plan(round_state(people))
    full = allocator.balance.load.copy()
    allocator.forget(2)
    allocator.plan(round_state(away, round=1))
    assert np.isnan(allocator.balance.load[2])
    allocator.plan(round_state(people, round=2))
    assert allocator.balance.load[2] > 0.5 * full[2]
