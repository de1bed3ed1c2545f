"""Every registered method passes the same tests: what a plan is, what a step is, what survives a restart."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import METHODS, ONE_TASK, experiment_of, files, resumes_to_the_same_bits, round_state, table
from every_method import UNBIASED, VARIANTS, people_for
from fedmux.aggregation import Aggregator
from fedmux.aggregation.aggregator import Workspace
from fedmux.allocation import Fixed, Probabilities
from fedmux.allocation.contract import check_draw, planned
from fedmux.experiment import Experiment
from fedmux.methods import Method
from fedmux.training.running import run
from stepping import next_models, play, zero_models

PARAMETERS = 5


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Aggregator, "workspace", Workspace(tmp_path / "scratch"))


@pytest.mark.parametrize(("method", "options"), VARIANTS)
def test_a_plan_keeps_its_promises(method: type[Method], options: dict) -> None:
    people = people_for(method)
    chosen = method(**options)
    for number in range(6):
        state = round_state(people, round=number)
        plan = planned(chosen.allocator(), state)
        assignment = plan.draw(state.rng())
        check_draw(plan, assignment, state, "test")
        assert people.available[assignment.client, assignment.task].all()
        assert len({*zip(assignment.client, assignment.task)}) == len(assignment)
        assert (np.diff(assignment.task) >= 0).all()
        if isinstance(plan, Probabilities):
            assert ((plan.probability >= 0) & (plan.probability <= 1)).all()
            assert (plan.probability.sum(1) <= 1 + 1e-9).all()
            used = np.bincount(assignment.client, assignment.count, people.clients)
            assert (used <= people.capacity).all()
            expected = (plan.processors[:, None] * plan.probability).sum()
            possible = plan.processors[plan.probability.sum(1) > 0].sum()
            assert expected == pytest.approx(min(4.0, possible), abs=1e-9)
        else:
            assert isinstance(plan, Fixed)
            jobs = np.bincount(assignment.client, minlength=people.clients)
            assert plan.beyond_capacity == (method.name in ("full", "mifa"))
            assert plan.beyond_capacity or (jobs <= people.capacity).all()


@pytest.mark.parametrize(("method", "options"), VARIANTS)
def test_a_plan_is_a_function_of_its_state(method: type[Method], options: dict) -> None:
    state = round_state(people_for(method), round=3, seed=5)
    first, second = (method(**options).allocator().plan(state).draw(state.rng()) for _ in range(2))
    for name in ("client", "task", "count", "probability", "expected"):
        assert (getattr(first, name) == getattr(second, name)).all()


def test_every_claim_of_unbiasedness_is_tested() -> None:
    claiming = {method for method in METHODS.values() if method.unbiased_when is not None}
    assert claiming == {variant.values[0] for variant in UNBIASED}


@pytest.mark.parametrize(("method", "options"), UNBIASED)
def test_the_step_is_unbiased(method: type[Method], options: dict, scratch: None) -> None:
    chosen = method(**options)
    people = people_for(method)
    rng = np.random.default_rng(7)
    updates = rng.normal(1.0, 1.0, (people.clients, people.tasks, PARAMETERS))
    models = zero_models(people.tasks, PARAMETERS)
    wanted = np.einsum("is,isp->sp", people.shares, updates)
    draws = 2500
    steps = np.empty((draws, people.tasks, PARAMETERS))
    sizes = np.empty((draws, people.tasks))
    allocator, aggregator = chosen.allocator(), chosen.aggregator()
    for number in range(3):  # some history, so that an aggregator with memory has one
        state = round_state(people, round=number)
        past = rng.normal(1.0, 1.0, updates.shape)
        play(allocator, aggregator, state, models, past)
    learned = {name: value.copy() for name, value in allocator.state().items()}
    history = {name: value.clone() for name, value in aggregator.state().items()}
    for draw in range(draws):
        aggregator.restore(history)
        allocator.restore({name: value.copy() for name, value in learned.items()})
        state = replace(state, round=3, seed=draw)
        after = play(allocator, aggregator, state, models, updates, chunks=1)
        steps[draw] = [-model.parameters.numpy() for model in after]
        sizes[draw] = aggregator.step_sizes()
    error = steps.std(0) / np.sqrt(draws) + 1e-9
    assert (np.abs(steps.mean(0) - wanted) < 4.5 * error).all()
    assert (np.abs(sizes.mean(0) - 1) < 4.5 * (sizes.std(0) / np.sqrt(draws) + 1e-9)).all()


@pytest.mark.parametrize(("method", "options"), VARIANTS)
def test_no_update_is_lost_and_an_idle_task_stays(method: type[Method], options: dict, scratch: None) -> None:
    people = people_for(method)
    updates = np.ones((people.clients, people.tasks, PARAMETERS))
    models = zero_models(people.tasks, PARAMETERS)
    chosen = method(**options)
    for seed in range(5):
        allocator, aggregator = chosen.allocator(), chosen.aggregator()
        state = round_state(people, seed=seed, jobs=2)
        assignment = allocator.plan(state).draw(state.rng())
        after = next_models(aggregator, state, assignment, models, updates)
        for task in range(people.tasks):
            moved = float(models[task].parameters[0] - after[task].parameters[0])
            assert moved == pytest.approx(aggregator.step_sizes()[task])  # all updates are one
            assert (moved > 0) == bool((assignment.task == task).any())


def experiment(method: type[Method]) -> Experiment:
    small = table(method=method.name)
    if method.name in ONE_TASK:
        small["task"] = small["task"][:1]
    return experiment_of(**small)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_run_is_deterministic_and_survives_a_restart(method, tmp_path) -> None:
    whole = resumes_to_the_same_bits(experiment(method), tmp_path, 3)
    again = run(experiment(method), tmp_path / "again")
    assert files(whole.path) == files(again.path)
