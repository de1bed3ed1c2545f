"""Clients and tasks that come and go, under every method; absence; dropouts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedmux
from conftest import (
    METHODS,
    ONE_TASK,
    experiment_of,
    population,
    resumes_to_the_same_bits,
    round_state,
    table,
)
from every_method import UNBIASED
from fedmux.allocation.plan import Assignment
from fedmux.dynamics import Absence, Dropout, Event, Presence, Process, Returns, Stragglers
from fedmux.experiment import Experiment
from fedmux.model import Model
from refusals import refused
from stepping import next_models, play

SCENARIO = {
    "rounds": 9,
    "event": [
        {"round": 2, "join": 2},
        {"round": 3, "leave": [0, 1], "join_tasks": ["c"]},
        {"round": 4, "leave": 0.2},
        {"round": 5, "join": [0]},
        {"round": 6, "leave_tasks": ["a"]},
        {"round": 7, "join": 1.0},
    ],
    "absence": {"kind": "random", "present": [0.6, 1.0]},
    "dropout": {"rate": [0.0, 0.4], "correction": "known"},
}


def scenario(method: str, **changes) -> Experiment:
    small = table(method=method, **SCENARIO)
    small["population"]["start"] = 7
    small["task"].append({**small["task"][0], "name": "c"})
    if method in ONE_TASK:
        small["task"] = small["task"][:1]
        small["event"] = [{k: v for k, v in event.items() if "tasks" not in k} for event in small["event"]]
    return experiment_of(**(small | changes))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_follows_joins_and_leaves_and_resumes_in_the_middle(method, tmp_path):
    whole = resumes_to_the_same_bits(scenario(method), tmp_path, 5)
    jobs = whole.allocation
    if method not in ONE_TASK:
        assert not (jobs["task"][jobs["round"] < 3] == 2).any()  # task c has not joined
        assert not (jobs["task"][jobs["round"] >= 6] == 0).any()  # task a has left
    assert not np.isin(jobs["client"][(jobs["round"] >= 3) & (jobs["round"] < 5)], [0, 1]).any()
    assert (jobs["client"][jobs["round"] == 1] < 7).all()
    events = {entry["round"]: entry["events"] for entry in whole.metrics if "events" in entry}
    assert events[2]["joined"] == [7, 8] and events[3]["left"] == [0, 1] and 0 in events[5]["joined"]


@pytest.mark.parametrize(
    "losing",
    [
        (Dropout(rate=(0.1, 0.5)), None),
        (None, Stragglers(over_selection=1.6)),
        (Dropout(rate=(0.3, 0.8)), Stragglers(over_selection=1.6)),
    ],
    ids=["dropouts", "stragglers", "both"],
)
@pytest.mark.parametrize(("method", "options"), [v for v in UNBIASED if not v.values[1]])
def test_the_step_stays_unbiased_after_joins_and_leaves_when_some_do_not_return(method, options, losing):
    """The history is of a fleet in which some were absent; the target is that of those now present."""
    tasks = 1 if method.name in ONE_TASK else 2
    everyone = population(clients=9, tasks=tasks, seed=1)
    rng = np.random.default_rng(3)
    before = fedmux.Population(
        everyone.capacity, everyone.sizes, everyone.eligible & (np.arange(9) < 6)[:, None]
    )
    now = fedmux.Population(
        everyone.capacity, everyone.sizes, everyone.eligible & (np.arange(9) > 1)[:, None]
    )
    updates = rng.normal(1.0, 1.0, (9, tasks, 3)).astype(np.float32)
    models = [Model(torch.zeros(3), torch.zeros(0, dtype=torch.float64)) for _ in range(tasks)]
    allocator, aggregator = method().allocator(), method().aggregator()
    for number in range(2):
        state = round_state(before, round=number)
        past = rng.normal(1.0, 1.0, updates.shape).astype(np.float32)
        play(allocator, aggregator, state, models, past)
    history = {name: value.clone() for name, value in aggregator.state().items()}
    returns = Returns(losing[0], 9, 0, losing[1])
    lost = 0
    draws = 2500
    steps = np.empty((draws, tasks, 3))
    for draw in range(draws):
        aggregator.restore(history)
        state = round_state(now, round=2, seed=draw)
        plan = allocator.plan(state)
        drawn = plan.draw(state.rng())
        state = replace(state, betas=getattr(plan, "betas", None))
        came = returns.draw(draw)[drawn.client]
        back = returns.first(drawn.client, came, returns.enough(drawn.client, 1.6), draw)
        lost += int((~back).sum())
        returned = drawn.only(back, returns.correction(drawn.client, came, back))
        after = next_models(aggregator, state, returned, models, updates)
        steps[draw] = [-model.parameters.numpy() for model in after]
    wanted = np.einsum("is,isp->sp", now.shares, updates)
    error = steps.std(0) / np.sqrt(draws) + 1e-6
    assert (np.abs(steps.mean(0) - wanted) < 4.5 * error).all() and lost > draws / 2


def presence(**changes) -> Presence:
    settings = {
        "clients": 20,
        "tasks": ["a", "b"],
        "seed": 0,
        "start": 20,
        "events": [],
        "arrivals": None,
        "departures": None,
        "absence": None,
    }
    return Presence(**settings | changes)


def test_events_happen_before_their_round_and_stay():
    people = presence(
        start=5,
        events=[
            Event(round=3, join=4, join_tasks=["b"]),
            Event(round=4, leave=[0, 7]),
            Event(round=6, leave=0.5, leave_tasks=["a"]),
        ],
    )
    count = [int(people.at(number)[0].sum()) for number in range(7)]
    assert count == [5, 5, 9, 7, 7, 3, 3]  # half of 7 rounds to 4
    assert [people.at(number)[1].tolist() for number in (0, 1, 2, 5)] == [
        [True, False],
        [True, False],
        [True, True],
        [False, True],
    ]
    assert people.at(2)[0].tolist() == [True] * 9 + [False] * 11


def test_presence_is_a_function_of_the_round_however_it_is_reached():
    make = {"start": 6, "arrivals": Process(mean_wait=2.0, clients=2), "departures": Process(mean_wait=3.0)}
    forward = presence(**make)
    seen = [forward.at(number)[0].copy() for number in range(30)]
    for number in (29, 3, 17, 0):
        assert (presence(**make).at(number)[0] == seen[number]).all()
        assert (forward.at(number)[0] == seen[number]).all()


def test_arrivals_come_at_the_rate_that_was_asked_for():
    people = presence(clients=10_000, start=1, arrivals=Process(mean_wait=0.5, clients=3))
    joined = people.at(999)[0].sum() - 1
    assert joined == pytest.approx(1000 / 0.5 * 3, rel=4.5 / np.sqrt(2000))


def test_absence_at_random_and_in_cycles_keeps_its_share():
    away = presence(clients=500, start=500, absence=Absence(kind="random", present=0.7))
    share = np.mean([away.at(number)[0].mean() for number in range(50)])
    assert share == pytest.approx(0.7, abs=4.5 * np.sqrt(0.21 / 25_000))
    cycle = presence(clients=500, start=500, absence=Absence(kind="cycle", present=0.5, period=10))
    days = np.array([cycle.at(number)[0] for number in range(30)])
    assert (days[:10] == days[10:20]).all() and (days.sum(0) == 15).all()
    assert len(np.unique(days[:10], axis=1).T) > 5  # phases differ


def test_absence_follows_a_file(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("client,first,last\n0,1,3\n2,2,2\n0,6,6\n")
    people = presence(clients=3, absence=Absence(kind="file", file=str(path)))
    seen = [people.at(number)[0].tolist() for number in range(6)]
    assert [row[0] for row in seen] == [True, True, True, False, False, True]
    assert [row[2] for row in seen] == [False, True, False, False, False, False]
    assert not any(row[1] for row in seen)


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("client,first\n0,1\n", "columns", "client, first, last"),
        ("client,first,last\n0,one,3\n", "line 2", "three whole numbers"),
        ("client,first,last\n9,1,3\n", "line 2", "client must be 0..2"),
        ("client,first,last\n1,4,3\n", "line 2", "first at most last"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused(tmp_path, text, place, remedy):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with refused((str(path), place), remedy):
        presence(clients=3, absence=Absence(kind="file", file=str(path)))


def test_a_return_probability_is_learned():
    returns = Returns(Dropout(rate=(0.0, 0.6), correction="estimated"), 30, seed=1)
    everyone, all_back = np.arange(30), np.ones(30, bool)
    assert (returns.correction(everyone, all_back, all_back) == 1).all()  # before anything is known
    for number in range(2000):
        returns.learn(everyone, returns.draw(number), all_back)
    learned = returns.correction(everyone, all_back, all_back)
    assert learned == pytest.approx(returns.probability, abs=0.06)
    again = Returns(Dropout(rate=(0.0, 0.6), correction="estimated"), 30, seed=1)
    again.restore(returns.state())
    assert (again.correction(everyone, all_back, all_back) == learned).all()


def test_slow_clients_are_left_behind_and_their_own_record_makes_up_for_it():
    stragglers = Stragglers(over_selection=2.0, correction="estimated", spread=1.0)
    returns, everyone = Returns(None, 40, 3, stragglers), np.arange(40)
    taken = np.zeros(40)
    for number in range(1500):
        came = np.ones(40, bool)
        back = returns.first(everyone, came, returns.enough(everyone, 2.0), number)
        assert back.sum() == 20
        returns.learn(everyone, came, back)
        taken += back
    assert taken.min() < 0.2 * 1500 < 0.8 * 1500 < taken.max()
    assert returns.correction(everyone, came, back) == pytest.approx(taken / 1500, abs=0.02)


@pytest.mark.parametrize("method", ["mmfl-lvr", "full", "round-robin"])
def test_over_selection_draws_more_and_takes_as_many_as_were_wanted(tmp_path, method):
    plain = table(method=method, rounds=6)
    plain["population"] |= {"clients": 40, "jobs": 10, "processors": 1}
    more = {**plain, "stragglers": {"over_selection": 2.0}}
    runs = [fedmux.run(experiment_of(**t), tmp_path / name) for name, t in (("plain", plain), ("more", more))]
    for entry in runs[1].metrics[1:]:
        uploads = sum(task["uploads"] for task in entry["tasks"].values())
        if method == "full":  # wants everybody: there are no more to draw
            assert entry["dropped"] == 0
        else:  # half of the drawn clients, rounded up; a client may train two
            assert abs(uploads - entry["dropped"]) <= 3
    drawn = [len(run.allocation) for run in runs]
    assert drawn[1] == drawn[0] if method == "full" else 1.5 * drawn[0] < drawn[1]


@pytest.mark.parametrize("method", ["random", "fedvarp", "mmfl-lvr", "fedfairmmfl", "mmfl-group", "full"])
@pytest.mark.parametrize(("budget", "wanted"), [({"rate": 0.9}, 18), ({"jobs": 15.0}, 15)])
def test_over_selection_never_waits_for_fewer_than_were_wanted(tmp_path, method, budget, wanted):
    """So many times the clients there are cannot be drawn: then most of them are waited for."""
    small = table(method=method, rounds=3, stragglers={"over_selection": 1.5})
    small["population"] = {"clients": 20, "processors": 1, "availability": 1.0, **budget}
    run = fedmux.run(experiment_of(**small), tmp_path / "run")
    for entry in run.metrics[1:]:
        uploads = sum(task["uploads"] for task in entry["tasks"].values())
        assert uploads >= (40 if method == "full" else wanted)


def test_what_jobs_cost_has_no_say_in_whom_a_method_waits_for_that_does_not_weigh_it(tmp_path):
    small = table(method="random", rounds=5, stragglers={"over_selection": 1.3})
    small["population"] = {"clients": 40, "jobs": 12, "processors": 1}
    costly = {**small, "task": [{**task, "cost": 5.0} for task in small["task"]]}
    taken = [
        [entry["dropped"] for entry in fedmux.run(experiment_of(**t), tmp_path / name).metrics[1:]]
        for name, t in (("plain", small), ("costly", costly))
    ]
    assert taken[0] == taken[1]


def test_groups_wait_for_as_many_as_they_train_without_over_selection(tmp_path):
    small = table(method="mmfl-group", rounds=8)
    small["population"] = {"clients": 24, "jobs": 3, "processors": 1}
    more = {**small, "stragglers": {"over_selection": 3.0}}
    runs = [fedmux.run(experiment_of(**t), tmp_path / name) for name, t in (("a", small), ("b", more))]
    uploads = [[sum(t["uploads"] for t in e["tasks"].values()) for e in run.metrics[1:]] for run in runs]
    assert min(uploads[1]) >= min(uploads[0])


@pytest.mark.parametrize("correction", ["known", "none"])
def test_dropouts_leave_the_expected_step_of_an_unbiased_method_as_it_is_unless_that_is_unwanted(
    tmp_path, correction
):
    told = {} if correction == "known" else {"correction": "none"}
    small = table(method="random", rounds=400, dropout={"rate": 0.5, **told})
    small["evaluation"] = {"every": 400, "clients": False}
    small["task"] = [{**task, "learning_rate": 1e-4} for task in small["task"]]
    run = fedmux.run(experiment_of(**small), tmp_path / "run")
    sizes = np.array([[task["step_size"] for task in e["tasks"].values()] for e in run.metrics[1:]])
    error = sizes.std(0) / np.sqrt(len(sizes))
    assert (np.abs(sizes.mean(0) - (1.0 if correction == "known" else 0.5)) < 4.5 * error).all()


def test_the_work_of_clients_that_drop_out_is_counted_as_wasted(tmp_path):
    for method, kept in (("random", False), ("mmfl-gvr", True)):
        small = table(method=method, rounds=6, dropout={"rate": 0.5})
        run = fedmux.run(experiment_of(**small), tmp_path / method)
        jobs, totals = run.allocation, run.summary["totals"]
        dropped = jobs[jobs["weight"] == 0]
        # One local step each: no client has more points than a batch. For a norm all of them train anyway.
        assert totals["wasted_steps"] == (0 if kept else len(dropped)) and len(dropped)
        if not kept:
            assert totals["gradient_steps"] == len(jobs)


def test_the_loss_of_jobs_is_reported(tmp_path):
    small = table(method="random", rounds=6, dropout={"rate": 0.5, "correction": "none"})
    run = fedmux.run(experiment_of(**small), tmp_path / "run")
    jobs = run.allocation
    dropped = int((jobs["weight"] == 0).sum())
    assert 0 < dropped < len(jobs)
    assert run.summary["dropped"] == dropped == sum(entry.get("dropped", 0) for entry in run.metrics)
    assert run.summary["totals"]["uploads"] == len(jobs) - dropped


def test_a_task_whose_last_client_leaves_pauses_and_goes_on(tmp_path, capsys):
    small = table(method="mmfl-lvr", rounds=6)
    small["population"] |= {"clients": 3, "processors": 1, "availability": 1.0}
    small["event"] = [{"round": 3, "leave": [0, 1, 2]}, {"round": 5, "join": 3}]
    run = fedmux.run(experiment_of(**small), tmp_path / "run")
    told = capsys.readouterr().out
    assert 'round 3: task "a" pauses' in told and 'round 5: task "a" continues' in told
    assert told.count("pauses") == 2
    jobs = {entry["round"]: sum(t["jobs"] for t in entry["tasks"].values()) for entry in run.metrics[1:]}
    assert jobs[3] == jobs[4] == 0 and sum(jobs.values()) > 0


@pytest.mark.parametrize("method", METHODS)
def test_a_fleet_that_is_empty_for_a_while_harms_no_method(method, tmp_path):
    small = table(method=method, rounds=4, event=[{"round": 2, "leave": 1.0}, {"round": 4, "join": 1.0}])
    if method in ONE_TASK:
        small["task"] = small["task"][:1]
    run = fedmux.run(experiment_of(**small), tmp_path / "run")
    assert not np.isin(run.allocation["round"], [2, 3]).any()
    assert np.isfinite(run.summary["accuracy"]["mean"])


def test_a_task_that_joins_with_no_client_waits(tmp_path):
    small = table(
        rounds=4, event=[{"round": 2, "leave": 1.0, "join_tasks": ["b"]}, {"round": 4, "join": 1.0}]
    )
    run = fedmux.run(experiment_of(**small), tmp_path / "run")
    assert set(run.allocation["round"][run.allocation["task"] == 1]) <= {4}


@pytest.mark.parametrize(
    ("changes", "place", "remedy"),
    [
        ({"event": [{"round": 2, "join_tasks": ["zzz"]}]}, ("event", '"zzz"'), "task"),
        ({"event": [{"round": 0}]}, ("event", "round"), "greater than or equal to 1"),
        ({"event": [{"round": 2, "join": -1}]}, ("event", "join"), "a number of clients"),
        ({"event": [{"round": 2, "leave": 1.5}]}, ("event", "leave"), "above 0 and at most 1"),
        ({"event": [{"round": 2, "leave": [99]}]}, ("event", "round 2"), "0..11"),
        ({"absence": {"kind": "random", "present": [0.9, 0.1]}}, ("absence", "present"), "lower end first"),
        ({"absence": {"kind": "file"}}, ("absence", "file"), 'kind = "file"'),
        ({"dropout": {"rate": 1.0}}, ("dropout", "rate"), "below 1"),
        ({"arrivals": {"mean_wait": 0}}, "[arrivals] mean_wait", "greater than 0"),
        ({"population": {"clients": 3, "start": 4}}, ("population", "start"), "at most clients = 3"),
    ],
)
def test_dynamics_that_make_no_sense_are_refused(changes, place, remedy):
    with refused(place, remedy):
        experiment_of(**changes)


def test_jobs_of_those_who_return_keep_their_expectation():
    jobs = Assignment(
        np.array([0, 1]), np.array([0, 0]), np.array([1, 2]), np.array([0.5, 0.5]), np.array([0.5, 1.0])
    )
    left = jobs.only(np.array([False, True]), np.array([0.9, 0.8]))
    assert (left.client.tolist(), left.count.tolist(), left.expected.tolist()) == ([1], [2], [0.8])
