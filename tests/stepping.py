"""Rounds on given updates, without a fleet: what tests of allocators and aggregators share."""

from dataclasses import replace

import numpy as np
import torch

from fedmux.aggregation import Aggregator, Updates
from fedmux.allocation import Allocator, Assignment, Plan, RoundState
from fedmux.allocation.contract import planned
from fedmux.distributed.memory import nothing
from fedmux.distributed.team import ALONE
from fedmux.model import Model
from fedmux.training.learning import Learning

SIGMAS = 4.5  # how far a mean over draws may lie from what it should be


def zero_models(tasks: int, size: int) -> list[Model]:
    return [
        Model(torch.zeros(size, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))
        for _ in range(tasks)
    ]


def jobs(*rows: tuple[int, int, int, float, int]) -> Assignment:
    """An assignment from (client, task, count, probability, processors of the client)."""
    client, task, count, probability, processors = (np.array(column) for column in zip(*rows))
    return Assignment(client, task, count, probability, processors * probability)


NOBODY = Assignment(*(np.zeros(0, np.int64) for _ in range(3)), *(np.zeros(0) for _ in range(2)))


def deliver(
    aggregator: Aggregator,
    assignment: Assignment,
    models: list[Model],
    updates: np.ndarray,
    steps: int = 5,
    chunks: int = 2,
    losses: np.ndarray | None = None,
    learning: Learning | None = None,
) -> list[Model]:
    """The second half of a round: the jobs' updates (from N x S x P) arrive in so many chunks per task, with
    the losses (from N x S) that they started from."""
    for task in range(len(models)):
        rows = np.flatnonzero(assignment.task == task)
        for chunk in np.array_split(rows, chunks):
            if len(chunk):
                sent = torch.from_numpy(updates[assignment.client[chunk], task])
                none = torch.zeros(len(chunk), 0, dtype=torch.float64)
                told = None if losses is None else losses[assignment.client[chunk], task]
                arriving = Updates(task, chunk, sent, none, np.full(len(chunk), steps), told)
                if learning is not None:
                    learning.note(arriving)
                aggregator.add(arriving)
    return aggregator.finish(models)


def step(
    aggregator: Aggregator, state: RoundState, assignment: Assignment, updates: np.ndarray, steps: int = 5
) -> np.ndarray:
    """What each model moves by (S x P) in a round on given updates (N x S x P)."""
    models = zero_models(*updates.shape[1:])
    aggregator.prepare(state, models)
    aggregator.begin(state, assignment, models)
    after = deliver(aggregator, assignment, models, updates, steps, losses=state.signals.losses)
    return np.stack([-model.parameters.numpy() for model in after])


def full_step(state: RoundState, updates: np.ndarray) -> np.ndarray:
    """sum_i d_is G_is (S x P): what an unbiased step is on average."""
    return np.einsum("is,isp->sp", state.population.shares, updates)


def variance(state: RoundState, probability: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """[P1] Eq. 12 for each task: sum_i d^2 / B ||G||^2 (1 / p - 1)."""
    people = state.population
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = people.shares**2 / people.capacity[:, None] * (1 / probability - 1) * (updates**2).sum(2)
    return np.where(people.available, terms, 0.0).sum(0)


def steps_of(
    aggregator: Aggregator, state: RoundState, plan: Plan, updates: np.ndarray, draws: int
) -> np.ndarray:
    """Many draws of the same round from the same history (draws x S x P)."""
    history = {name: value.clone() for name, value in aggregator.state().items()}
    result = np.empty((draws, *updates.shape[1:]))
    for number in range(draws):
        aggregator.restore(history)
        result[number] = step(aggregator, state, plan.draw(np.random.default_rng(number)), updates)
    aggregator.restore(history)
    return result


def assert_mean(values: np.ndarray, wanted: np.ndarray) -> None:
    """The mean over the first axis is `wanted`, up to chance."""
    error = values.std(0) / np.sqrt(len(values))
    worst = np.abs(values.mean(0) - wanted) / (error + 1e-9)
    assert (worst < SIGMAS).all(), f"{worst.max():.1f} standard errors off"


def next_models(
    aggregator: Aggregator,
    state: RoundState,
    assignment: Assignment,
    models: list[Model],
    updates: np.ndarray,
    chunks: int = 2,
) -> list[Model]:
    """One round's aggregation of given updates."""
    aggregator.prepare(state, models)
    aggregator.begin(state, assignment, models)
    return deliver(aggregator, assignment, models, updates, chunks=chunks, losses=state.signals.losses)


def play(
    allocator: Allocator,
    aggregator: Aggregator,
    state: RoundState,
    models: list[Model],
    updates: np.ndarray,
    chunks: int = 2,
) -> list[Model]:
    """A whole round on given updates: plan, draw, aggregation, and what the allocator learns from it."""
    aggregator.prepare(state, models)
    plan = planned(allocator, state)
    jobs = plan.draw(state.rng())
    state = replace(state, betas=getattr(plan, "betas", None))
    aggregator.begin(state, jobs, models)
    learning = Learning(allocator.learns, jobs, aggregator.stale, nothing)
    losses = state.signals.losses
    after = deliver(aggregator, jobs, models, updates, chunks=chunks, losses=losses, learning=learning)
    if allocator.learns:
        allocator.learn(state, learning.lessons(np.ones(len(jobs), bool), models, after, ALONE))
    return after
