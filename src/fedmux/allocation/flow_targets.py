"""Fair targets for many tasks: the filling of `targets.py` without listing all sets of tasks.

Whether targets can be served is a flow problem from tasks to clients' processors; if the flow falls short,
its minimum cut is a set of tasks that demand too much. So each phase of the filling takes the step that known
sets allow, routes the flow, and shortens the step to what the cut allows until nothing is cut (a discrete
Newton search). Clients with the same tasks are merged.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components

from fedmux.population import Bools, Floats, Ints

SPREADS = 20  # rounds of scaling before paths are searched
EXACT = 1e-13  # of all demand: less is rounding
TOO_MUCH = 1e-12  # of a set's limit: an excess below that is rounding


def fill_by_flow(
    weights: Floats, jobs: float, capacity: Ints, able: Bools, units: Floats, slack: float
) -> Floats:
    """Targets m (S) for positive weights: m = rho w until the total is `jobs` or a set reaches its limit.

    able: N x S, every task has a client. units: S, load of a job on a processor. slack: the share that is
    kept free where a set's clients have other tasks too.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # fixed order of sums; threads slow down many small products
        return _fill(weights, jobs, _Network(capacity, able, slack), units)


def _fill(weights: Floats, jobs: float, network: "_Network", units: Floats) -> Floats:
    known = network.simple()
    targets, growing = np.zeros(len(weights)), np.ones(len(weights), bool)
    while growing.any():
        growth = weights * growing
        left = (jobs - targets.sum()) / growth.sum()

        def until(tasks: Bools, targets: Floats = targets, growth: Floats = growth) -> float:
            pace = float((growth * units)[tasks].sum())
            room = network.limit(tasks) - float((targets * units)[tasks].sum())
            return max(room, 0.0) / pace if pace > 0 else np.inf

        step = min(left, *map(until, known))
        while step > 0:
            found = network.overloaded((targets + step * growth) * units)
            known += found
            shorter = min(map(until, found), default=np.inf)
            if not shorter < step:
                break
            step = shorter
        targets = targets + step * growth
        if step >= left:
            break
        for tasks in known:
            if until(tasks) <= step * (1 + 1e-12):
                growing = growing & ~tasks
    return targets


class _Network:
    def __init__(self, capacity: Ints, able: Bools, slack: float) -> None:
        rows = able.any(1)
        patterns, inverse = np.unique(np.packbits(able[rows], axis=1), axis=0, return_inverse=True)
        has = np.unpackbits(patterns, axis=1, count=able.shape[1]).astype(np.float64)
        number, label = connected_components(has.T @ has > 0, directed=False)
        self.has = np.ascontiguousarray(has.T)  # S x P: 1 where clients of a pattern have a task
        self.processors: Floats = np.bincount(inverse.ravel(), capacity[rows]).astype(np.float64)  # P
        self.components = [label == part for part in range(number)]  # of the graph of tasks linked by clients
        self.slack = slack
        self.flow: Floats | None = None  # S x P: the last one, to start from

    def simple(self) -> list[Bools]:
        """Sets that often stop growing first: single tasks, components, components without one task."""
        single = [*np.eye(len(self.has), dtype=bool)]
        parts = [part for part in self.components if part.sum() > 1]
        return single + parts + [part & ~one for part in parts for one in single if (part & one).any()]

    def limit(self, tasks: Bools) -> float:
        """What the clients of a set can serve, less slack if they have other tasks too."""
        served = float(self.processors[self.has[tasks].any(0)].sum())
        return served if self._closed(tasks) else (1 - self.slack) * served

    def _closed(self, tasks: Bools) -> bool:
        return all(tasks[part].all() or not tasks[part].any() for part in self.components)

    def overloaded(self, demand: Floats) -> list[Bools]:
        """Sets that demand more than their limit, if any; components are known not to.

        A flow within (1 - slack) of the processors decides, if it cuts nothing or a set that is not closed.
        Components may use the slack, and those that do are cut as a whole: then a set that demands too much
        lacks one of their tasks, or of another component's. Each task is left out in turn.
        """
        room: Floats = (1 - self.slack) * self.processors
        self.flow, cut = route(demand, room, self.has, self.flow)
        found = self._parts(demand, room, cut) if cut.any() and self._closed(cut) else [cut]
        return [
            tasks
            for tasks in found
            if tasks.any() and demand[tasks].sum() > (1 + TOO_MUCH) * self.limit(tasks)
        ]

    def _parts(self, demand: Floats, room: Floats, cut: Bools) -> list[Bools]:
        """Sets with part of one component, and all that is cut of the others."""
        assert self.flow is not None
        found = []
        short = np.maximum(demand - self.flow.sum(1), 0.0)
        takes = self.has @ self.flow.T
        for part in self.components:
            beside = cut & ~part
            excess = demand[beside].sum() - room[self.has[beside].any(0)].sum()  # of the others
            if not cut[part].any() and not excess > 0:
                continue
            members = np.flatnonzero(part)
            for without in members.tolist():
                rest = members[members != without]
                with np.errstate(divide="ignore", invalid="ignore"):
                    share = np.where(short[rest] > 0, short[rest] / takes[rest, without], 0.0)
                if not excess > 0 and share.sum() <= 1:
                    continue  # this task's room covers what the others lack
                for one in [None] if not excess > 0 else rest.tolist():
                    asked = np.where(part, demand, 0.0)
                    asked[without] = 0.0
                    if one is not None:  # including it in the set adds the others' excess
                        asked[one] += excess
                    some = along_paths(asked, room, self.has, np.where(asked[:, None] > 0, self.flow, 0.0))[1]
                    if some.any():
                        found.append(some | beside)
        return found


def route(demand: Floats, room: Floats, has: Floats, flow: Floats | None = None) -> tuple[Floats, Bools]:
    """A largest flow (S x P) of demand (S) into room (P) where `has` is 1, and the tasks (S) of its cut.

    None are cut if all demand is served. Starting from `flow`, tasks and rooms are scaled alternately, which
    often serves it all.
    """
    flow = has * room if flow is None else flow
    for _ in range(SPREADS):
        served = flow.sum(1)
        flow = flow * np.divide(demand, served, out=np.zeros(len(demand)), where=served > 0)[:, None]
        over = flow.sum(0) / room
        if over.max() <= 1 and (served[demand > 0] > 0).all():
            return flow, np.zeros(len(demand), bool)
        flow /= np.maximum(over, 1.0)
    return along_paths(demand, room, has, flow)


def along_paths(demand: Floats, room: Floats, has: Floats, flow: Floats) -> tuple[Floats, Bools]:
    """A largest flow as in `route`, starting from one within demand and room; changes it in place.

    Along shortest paths: a task takes free room, or takes over room from another task, which takes over from
    a third. A path moves flow in all possible rooms at once, so few paths are needed.
    """
    least = EXACT * float(demand.sum())
    takes = has @ flow.T  # S x S: what task s could take over from task t
    short, free = demand - flow.sum(1), np.maximum(room - flow.sum(0), 0.0)
    while True:
        fits = has @ free
        reached = _paths(short > least, takes > least)
        ends = np.flatnonzero((reached.length >= 0) & (fits > least))
        if not len(ends):
            return flow, reached.length >= 0
        path = reached.to(int(ends[np.argmin(reached.length[ends])]))
        links = list(itertools.pairwise(path))
        amount = min(short[path[0]], fits[path[-1]], *(takes[link] for link in links))
        for task, other in links:
            moved = has[task] * flow[other] * (amount / takes[task, other])
            flow[task] += moved
            flow[other] -= moved
        taken = has[path[-1]] * free * (amount / fits[path[-1]])
        flow[path[-1]] += taken
        free -= taken
        short[path[0]] -= amount
        takes[:, path] = has @ flow[path].T


@dataclass(frozen=True, eq=False)
class _Paths:
    length: Ints  # S: links of a shortest path from a task that is short, -1 if there is none
    previous: Ints  # S

    def to(self, task: int) -> list[int]:
        path = [task]
        while self.length[path[0]]:
            path.insert(0, int(self.previous[path[0]]))
        return path


def _paths(starts: Bools, links: Bools) -> _Paths:
    """Breadth first, from all tasks that are short at once."""
    length, previous = np.where(starts, 0, -1), np.zeros(len(starts), np.int64)
    front, steps = starts, 0
    while front.any():
        steps += 1
        reached = links[front].any(0) & (length < 0)
        previous[reached] = np.flatnonzero(front)[links[front][:, reached].argmax(0)]
        length[reached] = steps
        front = reached
    return _Paths(length, previous)
