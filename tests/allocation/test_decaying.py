"""MMFL-StaleVRE: the weights of stale updates are those of its authors' record of rounds."""

import numpy as np
import pytest

from conftest import experiment_of, population, round_state
from fedmux.allocation.decaying import DecayingBetas
from fedmux.allocation.lessons import Lessons
from fedmux.allocation.variance_reduced import ScoreOptions
from fedmux.training.running import run

PEOPLE = population(clients=9, tasks=3)
SHAPE = PEOPLE.sizes.shape


def lessons_of(client, task, new: np.ndarray, old: np.ndarray) -> Lessons:
    """What updates (N x S x P) show of these jobs."""
    g, h = new[client, task], old[client, task]
    norms, before = np.linalg.norm(g, axis=1), np.linalg.norm(h, axis=1)
    product = norms * before
    cosines = np.divide((g * h).sum(1), product, out=np.zeros(len(g)), where=product > 0)
    return Lessons(client, task, None, norms, cosines, before, norms)


def test_betas_are_those_of_a_record_that_is_kept_round_by_round():
    allocator, rng, first = DecayingBetas(0.9, ScoreOptions()), np.random.default_rng(0), 0.9
    old, drift = np.zeros((*SHAPE, 4)), rng.normal(1, 0.3, (*SHAPE, 4))
    record, rates, last = np.zeros(SHAPE), np.zeros(SHAPE), np.full(SHAPE, -1)
    for number in range(40):
        plan = allocator.plan(round_state(PEOPLE, round=number))
        assert plan.betas == pytest.approx(np.minimum(record, 1.0))
        jobs = plan.draw(np.random.default_rng(number))
        drift += rng.normal(0, 0.3, drift.shape)  # new updates are less and less like old ones
        allocator.learn(round_state(PEOPLE, round=number), lessons_of(jobs.client, jobs.task, drift, old))
        for client, task in zip(jobs.client, jobs.task):
            g, h = drift[client, task], old[client, task]
            if last[client, task] >= 0:
                rates[client, task] = (first - g @ h / (h @ h)) / (number - last[client, task])
            last[client, task] = number
        record = np.maximum(record - np.where(last >= 0, rates, 0.0), 0.0)
        record[jobs.client, jobs.task] = first
        old[jobs.client, jobs.task] = drift[jobs.client, jobs.task]
    assert (plan.betas == 0).any() and ((plan.betas > 0) & (plan.betas < 0.9)).any()


def test_a_task_that_is_forgotten_has_no_stale_updates():
    allocator = DecayingBetas(0.9, ScoreOptions())
    jobs = allocator.plan(round_state(PEOPLE)).draw(np.random.default_rng(1))
    ones, none = np.ones((*SHAPE, 2)), np.zeros((*SHAPE, 2))
    allocator.learn(round_state(PEOPLE), lessons_of(jobs.client, jobs.task, ones, none))
    assert (allocator.betas(1)[jobs.client, jobs.task] == 0.9).all()
    gone = int(jobs.task[0])
    allocator.forget(gone)
    assert not allocator.betas(1)[:, gone].any() and allocator.betas(1).any()


def test_its_first_round_costs_what_that_of_stale_updates_at_full_weight_costs(tmp_path):
    costs = []
    for method in ("mmfl-lvr*", "mmfl-stalevre"):
        finished = run(experiment_of(method=method, rounds=1), tmp_path / method.strip("*"))
        costs.append(
            [
                [task[key] for key in ("jobs", "uploads", "reports", "forward_passes", "gradient_steps")]
                for task in finished.metrics[1]["tasks"].values()
            ]
        )
    assert costs[0] == costs[1]


def test_betas_stay_between_nothing_and_all_however_old_an_update_gets():
    allocator = DecayingBetas(0.9, ScoreOptions())
    client, task = (index[:2] for index in np.nonzero(PEOPLE.available))
    h, better = np.ones((*SHAPE, 2)), np.ones((*SHAPE, 2)) * [[[1.5, 1.5]]]
    better[client[0], task[0]] *= -1
    allocator.plan(round_state(PEOPLE))
    allocator.learn(round_state(PEOPLE), lessons_of(client, task, h, 0 * h))
    allocator.learn(round_state(PEOPLE, round=1), lessons_of(client, task, better, h))
    assert set(allocator.betas(50)[client, task]) == {0.0, 1.0}
