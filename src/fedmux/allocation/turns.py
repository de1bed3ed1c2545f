"""Tasks take turns at picking clients, so that each gets the same number of jobs.

In its turn a task takes the candidate with its largest score that has a processor left (ties: the lowest
index). A client does at most one job of a task, and as many in all as it has processors. The first turn moves
on by a task each round; a task whose candidates have run out is passed over.
"""

from collections import deque

import numpy as np

from fedmux.allocation.plan import Fixed, RoundState
from fedmux.population import Bools, Floats


def in_turns(state: RoundState, scores: Floats, candidates: Bools) -> Fixed:
    """A plan of m jobs; scores and candidates are N x S."""
    people = state.population
    tasks = np.flatnonzero(candidates.any(0))
    free = people.capacity.copy()
    waiting = deque((int(task), iter(_ranked(scores[:, task], candidates[:, task]))) for task in tasks)
    waiting.rotate(-(state.round % max(len(tasks), 1)))
    most = state.budget.of_clients(people.total_processors)
    picked: list[tuple[int, int]] = []
    while waiting and len(picked) < most:
        task, queue = waiting.popleft()
        client = next((client for client in queue if free[client] > 0), None)
        if client is not None:
            free[client] -= 1
            picked.append((client, task))
            waiting.append((task, queue))
    pairs = np.array(picked, np.int64).reshape(-1, 2)
    wanted = (state.budget.wanted or state.budget).of_clients(people.total_processors)
    return Fixed(pairs[:, 0], pairs[:, 1], wanted=min(len(picked), wanted))


def _ranked(scores: Floats, candidates: Bools) -> list[int]:
    """The candidates of a task, best first."""
    clients = np.flatnonzero(candidates)
    return clients[np.argsort(-scores[clients], kind="stable")].tolist()
