"""The vectors h_is of a task's clients as combinations of a few shared ones: k P + N k numbers, not N P.

What is kept is h_i = a_i Q, with k orthonormal rows Q (k x P) for the task and k coordinates a_i for each
client. It changes between rounds only, so what a round subtracts from updates is what it adds as their mean,
and steps with stale updates stay unbiased.

After a round, the vectors of those that trained are replaced by their updates and the k directions are chosen
anew, from the span of Q and the updates: those that minimise sum_i n_i / ||h_i|| ||h_i - a_i Q||^2, so that a
client counts as it does for the least variance, by n_i ||h_i||. It counts even while it is away. As long as
k directions span everything, as with at most k clients, nothing is lost but rounding.

All that is decided follows from the inner products of Q and the updates, in float64. Every process holds the
same; the updates of a round are collected from all.
"""

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation.store import NumberFormat, Store
from fedmux.allocation import RoundState
from fedmux.model import Model
from fedmux.population import Floats, Ints

AT_ONCE = 128  # updates that are taken in together
COLUMNS = 2**16  # parameters whose products are computed together
LEAST = 1e-13  # of the largest eigenvalue: what is below is rounding


class LowRankStore(Store):
    def __init__(self, rank: int, precision: NumberFormat) -> None:
        super().__init__(precision)
        self.rank = rank
        self.sizes = np.zeros((0, 0))  # N x S: points of each pair when it was last available
        self.shares = np.zeros((0, 0))  # N x S: d_is of this round
        self.bases: list[Tensor] = []  # Q of each task: at most k x P
        self.coordinates: list[Tensor] = []  # N x rows of Q, float32, on the host
        self.fresh: list[dict[int, Tensor]] = []  # this round's updates in this process, by client

    def begin(self, state: RoundState, models: list[Model]) -> None:
        people = state.population
        clients, tasks = people.sizes.shape
        known = np.zeros((clients, tasks))
        known[: len(self.sizes), : self.sizes.shape[1]] = self.sizes
        self.sizes = np.where(people.available, people.sizes, known)
        self.shares = people.shares
        for task, model in enumerate(models):
            if task == len(self.bases):
                nothing = torch.zeros(0, len(model.parameters), dtype=self.dtype)
                self.bases.append(nothing.to(self.workspace.device))
                self.coordinates.append(torch.zeros(clients, 0))
                self.fresh.append({})
            joined = clients - len(self.coordinates[task])
            self.coordinates[task] = torch.nn.functional.pad(self.coordinates[task], (0, 0, 0, joined))

    def get(self, task: int, clients: Ints) -> Tensor:
        coordinates = self.coordinates[task][torch.from_numpy(clients)]
        return _combined(coordinates.double(), [self.bases[task]], torch.float32)

    def put(self, task: int, clients: Ints, values: Tensor, sizes: Ints, before: Tensor) -> None:
        try:
            kept = values.to(self.workspace.device, torch.float32, copy=True)
        except torch.OutOfMemoryError:
            kept = values.to("cpu", torch.float32)
        self.fresh[task].update(zip(clients.tolist(), kept))

    def end(self) -> None:
        trained = np.zeros(self.sizes.shape, np.int64)
        for task, fresh in enumerate(self.fresh):
            trained[list(fresh), task] = 1
        self.workspace.team.sum(trained)
        for task in range(len(self.bases)):
            basis, coordinates = self.bases[task], self.coordinates[task]
            clients = np.flatnonzero(trained[:, task])
            if len(clients):
                coordinates = coordinates.index_fill(0, torch.from_numpy(clients), 0.0)
            for first in range(0, len(clients), AT_ONCE):
                part = clients[first : first + AT_ONCE]
                basis, coordinates = self._taken_in(
                    task, basis, coordinates, part, self._gathered(task, part)
                )
            self.bases[task], self.coordinates[task] = basis, coordinates
            self.fresh[task] = {}

    def _gathered(self, task: int, clients: Ints) -> Tensor:
        """The updates of these clients (k x P) from all processes."""
        values = torch.zeros(len(clients), self.bases[task].shape[1], device=self.workspace.device)
        for row, client in enumerate(clients.tolist()):
            if client in self.fresh[task]:
                values[row] = self.fresh[task][client]
        self.workspace.team.sum(values)
        return values

    def _taken_in(
        self, task: int, basis: Tensor, coordinates: Tensor, clients: Ints, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The best basis with these clients' values, and everybody's coordinates in it."""
        old, who = len(basis), torch.from_numpy(clients)
        points = torch.from_numpy(self.sizes[:, task])
        products = _products([basis, values])
        lengths = _positive(products.diagonal().sqrt())
        # Rows of `span` and `unspan` belong to Q and the values, columns to orthonormal directions E:
        # rows = span @ E, and E = unspan.T @ rows.
        size, direction = _largest(products / lengths / lengths[:, None], len(lengths))
        span, unspan = direction * size.sqrt() * lengths[:, None], direction / size.sqrt() / lengths[:, None]
        known = coordinates.double()
        counts = points / _positive(known.norm(dim=1))
        weights = torch.zeros_like(products)  # the sum of squares that is to be kept, in terms of the rows
        weights[:old, :old] = known.T @ (counts[:, None] * known)
        weights[old:, old:] = torch.diag(points[who] / lengths[old:])
        best = _largest(span.T @ weights @ span, self.rank)[1]
        coordinates = known @ (span[:old] @ best)
        coordinates[who] = span[old:] @ best
        basis = _combined((unspan @ best).T, [basis, values], self.dtype)
        return basis, coordinates.float()

    def forget(self, task: int) -> None:
        self.bases[task] = self.bases[task][:0].clone()  # a view would keep the memory
        self.coordinates[task] = self.coordinates[task][:, :0].clone()
        self.fresh[task] = {}

    def mean(self, task: int) -> Tensor:
        return self.weighted(task, self.shares[:, task])

    def weighted(self, task: int, weights: Floats) -> Tensor:
        total = torch.from_numpy(weights)[None] @ self.coordinates[task].double()
        return _combined(total, [self.bases[task]], torch.float32)[0]

    def bytes(self, task: int) -> int:
        """Of the basis and all coordinates; every process holds them, and the first one counts them."""
        own = self.bases[task].nbytes + self.coordinates[task].nbytes
        return own if self.workspace.team.rank == 0 else 0

    def state(self) -> dict[str, Tensor]:
        tensors = {"sizes": torch.from_numpy(self.sizes.copy())}
        for task, (basis, coordinates) in enumerate(zip(self.bases, self.coordinates)):
            tensors |= {f"basis.{task}": basis.cpu(), f"coordinates.{task}": coordinates}
        return tensors

    def restore(self, state: dict[str, Tensor]) -> None:
        if "sizes" not in state:
            return
        self.sizes = state["sizes"].numpy().copy()
        tasks = range(self.sizes.shape[1])
        self.bases = [state[f"basis.{task}"].to(self.workspace.device) for task in tasks]
        self.coordinates = [state[f"coordinates.{task}"] for task in tasks]
        self.fresh = [{} for _ in tasks]


def _products(parts: list[Tensor]) -> Tensor:
    """Inner products of all rows of some matrices (k x P each), in float64 on the host."""
    rows = sum(map(len, parts))
    total = torch.zeros(rows, rows, dtype=torch.float64, device=parts[0].device)
    for first in range(0, parts[0].shape[1], COLUMNS):
        columns = _columns(parts, first)
        total += columns @ columns.T
    return total.cpu()


def _combined(factors: Tensor, parts: list[Tensor], kind: torch.dtype) -> Tensor:
    """factors @ the rows of these matrices, computed in float64: a GPU may be set to compute in TF32."""
    factors = factors.to(parts[0].device)
    result = torch.empty(len(factors), parts[0].shape[1], dtype=kind, device=factors.device)
    for first in range(0, result.shape[1], COLUMNS):
        result[:, first : first + COLUMNS] = factors @ _columns(parts, first)
    return result


def _columns(parts: list[Tensor], first: int) -> Tensor:
    return torch.cat([part[:, first : first + COLUMNS].double() for part in parts])


def _positive(lengths: Tensor) -> Tensor:
    """To divide by: what has no length has only zeros to be divided."""
    return torch.where(lengths > 0, lengths, 1.0)


def _largest(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """At most `count` of the largest eigenvalues of a symmetric matrix, largest first, with their vectors."""
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(0), vectors.flip(1)
    count = min(count, int((values > LEAST * values[:1]).sum()))
    return values[:count], vectors[:, :count]
