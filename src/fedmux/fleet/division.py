"""Which process of a team does which client's work. Every process computes the same division."""

import heapq

import numpy as np
import torch

from fedmux.population import Bools, Floats, Ints
from fedmux.tasks.task import Task


def owners(task: Task, size: int) -> Ints:
    """N: the process of each client, in ranges of about equal work, so that its points are contiguous."""
    work = np.cumsum(task.local.steps(task.sizes) + 1e-9)
    return np.minimum((work - work[0] / 2) * size // work[-1], size - 1).astype(np.int64)


def owned(tasks: list[Task], rank: int, size: int) -> Bools:
    """N x S: the pairs that belong to one process."""
    return np.stack([owners(task, size) == rank for task in tasks], axis=1)


def longest_first(costs: Floats, size: int) -> Ints:
    """J: the process of each job; longest jobs first, each to the least loaded process."""
    load = [(0.0, rank) for rank in range(size)]
    rank_of = np.zeros(len(costs), np.int64)
    for job in np.argsort(-costs, kind="stable").tolist():
        least, rank = heapq.heappop(load)
        rank_of[job] = rank
        heapq.heappush(load, (least + float(costs[job]), rank))
    return rank_of


def point_cost(task: Task) -> float:
    """Cost of one point of a task, in operations, to compare tasks; counted, not timed."""
    from torch.utils.flop_counter import FlopCounterMode

    module, point = task.module.eval(), task.x[:1]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        try:
            torch.func.vmap(module)(point[None])  # as in a stack: fused operations cannot be counted
        except Exception:  # a module that cannot be stacked
            module(point)
    return float(counter.get_total_flops()) + task.layout.size + 1.0
