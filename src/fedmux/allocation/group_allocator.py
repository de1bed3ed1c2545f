"""MMFL-Group Sampling ([P3] Algorithm 1) as an allocator: cycles of clustering and rotation."""

from typing import Any, Literal

import numpy as np

from fedmux.allocation.fair import global_loss
from fedmux.allocation.groups import cluster, nearest_group, plane, rotation, slots
from fedmux.allocation.plan import Allocator, Fixed, RoundState
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream, torch_seed

MOST_SHOWN = 5000  # up to this many clients their positions in the plane of losses are recorded
Structure = Literal["consistent", "inconsistent"]


class GroupAllocator(Allocator):
    """Clients are clustered at the start of each cycle; within it groups rotate over the models.

    Newcomers join a group when they first report and take part from the next round on; new models wait for
    the next cycle; if a model leaves, its slots pass to the model with the largest loss.
    """

    needs = frozenset({"loss"})

    def __init__(self, structure: Structure, most: int | None, scale: bool) -> None:
        self.structure, self.most, self.scale = structure, most, scale
        self.label = np.zeros(0, np.int64)  # N: group of each client, -1 without one
        self.centroids = np.zeros((0, 0))  # L x S, NaN in columns that were not used
        self.models = np.zeros(0, np.int64)  # R: the task of each slot
        self.loss = np.zeros(0)  # S: of each task at the C-step
        # steps done in this cycle, the column of the last one-column C-step
        self.step, self.column = 0, -1
        self.silhouette = 0.0
        self._clustered = False
        self._plane: list[list[float] | None] = []  # N: of the last C-step

    def reporters(self, state: RoundState) -> Bools:
        """Everyone at the start of a cycle; then only newcomers."""
        available = state.population.available
        if self._starts(state):
            return available
        return available & (self.label < 0)[:, None]

    def _starts(self, state: RoundState) -> bool:
        return len(self.label) != state.population.clients or self.step >= len(self.models)

    def plan(self, state: RoundState) -> Fixed:
        self._clustered = self._starts(state)
        if self._clustered:
            self._c_step(state)
        pairs, wanted = self._t_step(state)
        self._welcome(state)
        self.step += 1
        return Fixed(*pairs, wanted=wanted)

    def _c_step(self, state: RoundState) -> None:
        people, losses = state.population, state.signals.losses
        assert losses is not None
        tasks = np.flatnonzero(people.available.any(0))
        clients = np.flatnonzero(people.available.any(1))
        self.label = np.full(people.clients, -1, np.int64)
        self.centroids = np.full((0, people.tasks), np.nan)
        self.loss = np.nan_to_num(global_loss(state), nan=-np.inf)  # only orders tasks: may be negative
        self.step, self.models, self.silhouette, self._plane = 0, np.zeros(0, np.int64), 0.0, []
        if not len(tasks) or not len(clients):
            return
        columns = tasks
        if self.structure == "inconsistent":  # one column, moving on by one each cycle
            following = tasks[tasks > self.column]
            self.column = int(following[0] if len(following) else tasks[0])
            columns = np.array([self.column])
        seed = torch_seed(state.seed, Stream.GROUPS, round=state.round)
        found = cluster(losses[np.ix_(clients, columns)], len(tasks), seed, most=self.most, scale=self.scale)
        self.label[clients] = found.label
        self.centroids = np.full((len(found.centroids), people.tasks), np.nan)
        self.centroids[:, columns] = found.centroids
        self.models = tasks[slots(self.loss[tasks], len(found.centroids))]
        self.silhouette = found.silhouette
        if people.clients <= MOST_SHOWN:
            self._plane = [None] * people.clients
            for client, place in zip(clients.tolist(), plane(losses[np.ix_(clients, tasks)]).tolist()):
                self._plane[client] = [round(value, 4) for value in place]

    def _t_step(self, state: RoundState) -> tuple[tuple[Ints, Ints], int]:
        """(client, task) of the members drawn from each slot's group, and how many of them are needed."""
        people, rng = state.population, state.rng()
        present = np.flatnonzero(people.available.any(0))
        clients, tasks = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        rate = state.budget.rate_of_clients(people.active_clients)
        least, wanted = (state.budget.wanted or state.budget).rate_of_clients(people.active_clients), 0
        group_of_slot = rotation(len(self.models), len(self.centroids), self.step)
        for slot, group in enumerate(group_of_slot.tolist()):
            if group < 0 or not len(present):
                continue
            task = self.models[slot]
            if task not in present:  # it left: its slots go to the task with the largest loss
                known = np.intersect1d(present, self.models)
                if not len(known):
                    continue
                task = known[np.argmax(self.loss[known])]
            members = self.label == group
            size = int((members & people.available.any(1)).sum())
            able = np.flatnonzero(members & people.available[:, task])
            drawn = rng.permutation(able)[: max(1, int(rate * size + 0.5))]
            wanted += min(len(drawn), max(1, int(least * size + 0.5)))
            clients.append(drawn)
            tasks.append(np.full(len(drawn), task))
        return (np.concatenate(clients), np.concatenate(tasks)), wanted

    def _welcome(self, state: RoundState) -> None:
        """Put newcomers into groups."""
        losses = state.signals.losses
        newcomers = np.flatnonzero(state.population.available.any(1) & (self.label < 0))
        if losses is None or not len(self.centroids):
            return
        for client in newcomers.tolist():
            group = nearest_group(losses[client], self.centroids)
            sizes = np.bincount(self.label[self.label >= 0], minlength=len(self.centroids))
            self.label[client] = int(sizes.argmin()) if group is None else group

    def groups(self) -> Ints | None:
        return self.label if self._clustered else None

    def notes(self) -> dict[str, Any]:
        """The step of the cycle; after a C-step also the groups."""
        notes: dict[str, Any] = {"step": self.step, "steps": len(self.models)}
        if self._clustered:
            notes |= {
                "groups": self.label.tolist(),
                "centroids": [[None if np.isnan(v) else v for v in row] for row in self.centroids.tolist()],
                "silhouette": self.silhouette,
                "slots": self.models.tolist(),
            }
            if self._plane:
                notes["plane"] = self._plane
        return notes

    def state(self) -> dict[str, np.ndarray]:
        arrays: dict[str, Floats | Ints] = {
            "label": self.label,
            "centroids": self.centroids,
            "models": self.models,
            "loss": self.loss,
            "place": np.array([self.step, self.column]),
            "silhouette": np.array([self.silhouette]),
        }
        return arrays

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if state:
            self.label, self.centroids = state["label"].copy(), state["centroids"].copy()
            self.models, self.loss = state["models"].copy(), state["loss"].copy()
            self.step, self.column = (int(value) for value in state["place"])
            self.silhouette = float(state["silhouette"][0])
