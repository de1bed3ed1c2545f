"""Stores of what clients sent, kept busy: what tests of both kinds share."""

import numpy as np
import torch

from conftest import population, round_state
from fedmux.aggregation.store import Store
from fedmux.population import Population
from stepping import zero_models

SIZE = 7


def put(kept: Store, people: Population, task: int, clients: np.ndarray, values: np.ndarray) -> None:
    before = kept.get(task, clients)
    kept.put(task, clients, torch.from_numpy(values), people.sizes[clients, task], before)


def recomputed(kept: Store, people: Population, task: int) -> np.ndarray:
    """sum_i d_i h_i from what is stored, client by client."""
    vectors = kept.get(task, np.arange(people.clients)).double().numpy()
    return people.shares[:, task] @ vectors


def changed(people: Population, rng: np.random.Generator) -> Population:
    """Some clients leave or come back, some get other data; every task keeps somebody."""
    eligible = people.eligible ^ (rng.random(people.eligible.shape) < 0.1)
    eligible[:2] = True
    sizes = np.where(
        rng.random(people.sizes.shape) < 0.1, rng.integers(1, 40, people.sizes.shape), people.sizes
    )
    return Population(people.capacity, sizes, eligible)


def busy(kept: Store, rounds: int, seed: int = 0, size: int = SIZE) -> Population:
    """Rounds in which clients send while the population changes and, half way, grows."""
    rng = np.random.default_rng(seed)
    people = population(12, 2, seed)
    people = Population(np.maximum(people.capacity, 1), people.sizes, people.eligible)
    for number in range(rounds):
        people = changed(people, rng)
        if number == rounds // 2:
            more = population(5, 2, seed + 1)
            parts = ("capacity", "sizes", "eligible")
            people = Population(*(np.concatenate([getattr(people, p), getattr(more, p)]) for p in parts))
        kept.begin(round_state(people, round=number), zero_models(2, size))
        for task in range(2):
            able = np.flatnonzero(people.available[:, task])
            clients = np.sort(rng.choice(able, min(3, len(able)), replace=False))
            put(kept, people, task, clients, rng.normal(0, 3, (len(clients), size)))
        kept.end()
    return people


def go_on_alike(kept: Store, copy: Store) -> None:
    """A store that is restored from a busy one's state holds, after more rounds, the same bits."""
    people = busy(kept, 30)
    copy.restore({name: value.clone() for name, value in kept.state().items()})
    rng = np.random.default_rng(9)
    for number in range(30, 34):
        people = changed(people, rng)
        able = np.flatnonzero(people.available[:, 0])[:4]
        values = rng.normal(0, 1, (len(able), SIZE))
        for each in (kept, copy):
            each.begin(round_state(people, round=number), zero_models(2, SIZE))
            put(each, people, 0, able, values)
            each.end()
    for task in range(2):
        assert torch.equal(copy.mean(task), kept.mean(task))
        assert torch.equal(*(each.get(task, np.arange(people.clients)) for each in (kept, copy)))
        assert copy.bytes(task) == kept.bytes(task)
