"""Forecasts of what clients would send, from the updates that have arrived: nobody is asked for them.

The variance of task s's step is sum_i d^2 / B ||G - beta h||^2 (1 / p - 1), with G the update and h the last
one kept of the client. With c the cosine between G and h, the best beta is c ||G|| / ||h||, and then
||G - beta h|| = ||G|| sqrt(1 - c^2). So two forecasts are enough:

    log(||G|| / eta) = a + b log f + e log n     least squares over the jobs of a task, the old ones fading
    c                                            mean over the jobs of a task, by the age of h

f is the client's newest known loss, n its number of points. Whatever is forecast is fixed before the draw,
so the step stays unbiased; a bad forecast only costs variance.
"""

from typing import Any

import numpy as np

from fedmux.allocation.forecast_check import root_mean_square
from fedmux.allocation.lessons import Lessons
from fedmux.allocation.plan import RoundState
from fedmux.population import Bools, Floats, Ints

KEPT = 0.97  # weight of what was known, for each round in which jobs of the task arrive
PRIOR = np.array([0.0, 0.5, 0.25])  # a, b, e before any job
TRUST = np.array([1e-6, 20.0, 20.0])  # in the prior, in squared deviations of jobs
AGES = np.array([2, 5, 12, 30, 80])  # rounds: edges of the bins of cosines
PRIOR_COSINE, COSINE_TRUST = 0.5, 1.0
LEAST_LOSS = 1e-3
LARGEST_BETA = 2.0
KNOWLEDGE = ("losses", "lengths", "trained", "square", "product", "cosine")  # what a checkpoint has of it


class Forecaster:
    """What is known of every client, and the two regressions of each task."""

    def __init__(self, remembers: bool) -> None:
        self.remembers = remembers  # whether updates are kept: else h = 0
        self._begin((0, 0))
        self.error: dict[str, list[float | None]] = {}  # of the last round's forecasts

    def meet(self, state: RoundState) -> None:
        """Make room for the round's clients and tasks, and take in the losses that they report."""
        shape = state.population.sizes.shape
        if self.losses.shape != shape:
            self._begin(shape)
        if (reported := state.signals.losses) is not None:
            np.copyto(self.losses, reported, where=~np.isnan(reported))

    def _begin(self, shape: tuple[int, int]) -> None:
        self.losses = np.full(shape, np.nan)  # N x S: newest known, NaN: never
        self.lengths = np.zeros(shape)  # N x S: ||h||, 0: none
        self.trained = np.zeros(shape, np.int64)  # N x S: the round of h
        self.square, self.product = np.zeros((shape[1], 3, 3)), np.zeros((shape[1], 3))  # least squares
        self.cosine = np.zeros((2, shape[1], len(AGES) + 1))  # sum and weight: S x ages
        self._assume(slice(None))

    def _assume(self, tasks: int | slice) -> None:
        """What the regressions hold before any job."""
        self.square[tasks], self.product[tasks] = np.diag(TRUST), TRUST * PRIOR
        self.cosine[0, tasks], self.cosine[1, tasks] = COSINE_TRUST * PRIOR_COSINE, COSINE_TRUST

    def forget(self, task: int) -> None:
        """Back to what was assumed before any job."""
        if task < len(self.square):
            self.losses[:, task], self.lengths[:, task], self.trained[:, task] = np.nan, 0.0, 0
            self._assume(task)

    # What is forecast. Of a million clients few are known: only their rows are touched, task by task.

    def norms(self, state: RoundState) -> Floats:
        """||G|| / eta of every available pair (N x S; of the others any number)."""
        people = state.population
        found = np.maximum(people.sizes, 1, dtype=np.float64)
        np.log(found, out=found)
        level, b, e = self.coefficients().T
        found *= e
        known, logs = people.available & ~np.isnan(self.losses), []
        for s in range(people.tasks):
            rows = np.flatnonzero(known[:, s])
            losses = self.losses[rows, s]
            usual = _log_loss(losses.mean() if len(rows) else 1.0)  # the others are like those known
            found[rows, s] += b[s] * (_log_loss(losses) - usual)
            logs.append(usual)
        found += level + b * np.array(logs)
        return np.exp(found, out=found)

    def coefficients(self) -> Floats:
        """a, b and e of each task (S x 3)."""
        return np.asarray(np.linalg.solve(self.square, self.product[:, :, None])[:, :, 0], np.float64)

    def kept(self, task: int, available: Bools) -> Ints:
        """K: the available clients of which an update of the task is kept."""
        if not self.remembers:
            return np.zeros(0, np.int64)
        return np.flatnonzero((self.lengths[:, task] > 0) & available[:, task])

    def cosines(self, round: int, task: int, kept: Ints) -> Floats:
        """K: c of these clients; it is 0 for the others."""
        mean = self.cosine[0, task] / self.cosine[1, task]
        return np.asarray(mean[_bin(round - self.trained[kept, task])], np.float64)

    def scored(self, cosines: Floats) -> Floats:
        """The cosines that scores take account of."""
        return cosines

    def betas(self, norms: Floats, task: int, kept: Ints, cosines: Floats) -> Floats:
        """K: the best weight of each stale update, for norms of new ones (K)."""
        return np.minimum(cosines * norms / self.lengths[kept, task], LARGEST_BETA)

    # What is learned

    def learn(self, state: RoundState, lessons: Lessons) -> None:
        """From the updates of a round, after comparing them with what had been forecast."""
        assert lessons.losses is not None and lessons.norms is not None
        client, task = lessons.client, lessons.task
        norms = lessons.norms / state.learning_rates[task]
        sizes = state.population.sizes[client, task]
        sound = np.isfinite(norms) & (norms > 0) & np.isfinite(lessons.losses)
        age = _bin(state.round - self.trained[client, task])
        self.error = self._error(state, lessons, norms, age, sound)
        self.losses[client, task] = np.where(sound, lessons.losses, self.losses[client, task])
        for s in np.unique(task[sound]).tolist():
            rows = sound & (task == s)
            x = _features(lessons.losses[rows], sizes[rows])
            self.square[s] = KEPT * self.square[s] + (1 - KEPT) * np.diag(TRUST) + x.T @ x
            self.product[s] = KEPT * self.product[s] + (1 - KEPT) * TRUST * PRIOR + x.T @ np.log(norms[rows])
        if lessons.cosines is not None and lessons.before is not None and lessons.after is not None:
            self._learn_cosines(task, age, lessons.cosines, lessons.before > 0)
            self.lengths[client, task] = lessons.after
            self.trained[client, task] = state.round

    def _learn_cosines(self, task: Ints, age: Ints, cosines: Floats, kept: Bools) -> None:
        for s in np.unique(task).tolist():
            rows = kept & (task == s)
            prior = COSINE_TRUST * np.array([PRIOR_COSINE, 1.0])[:, None]
            bins = len(AGES) + 1
            new = [np.bincount(age[rows], weight, bins) for weight in (cosines[rows].clip(0), None)]
            self.cosine[:, s] = KEPT * self.cosine[:, s] + (1 - KEPT) * prior + np.stack(new)

    def _error(
        self, state: RoundState, lessons: Lessons, norms: Floats, age: Ints, sound: Bools
    ) -> dict[str, list[float | None]]:
        """How far the forecasts of each task were off (S): the root mean square of log ||G||, with the loss
        known before the round, and of c; None without a job."""
        client, task = lessons.client, lessons.task
        known = self.losses[client, task]
        mean = self.cosine[0] / self.cosine[1]
        off: dict[str, list[float | None]] = {"norm": [], "cosine": []}
        for s, (a, b, e) in enumerate(self.coefficients()):
            rows = sound & (task == s) & ~np.isnan(known)
            forecast = _norm(a, b, e, known[rows], state.population.sizes[client[rows], s])
            off["norm"].append(root_mean_square(np.log(forecast / norms[rows])))
            if lessons.cosines is not None and lessons.before is not None:
                rows = (task == s) & (lessons.before > 0)
                off["cosine"].append(root_mean_square(mean[s, age[rows]] - lessons.cosines[rows]))
        return {what: values for what, values in off.items() if values}

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in KNOWLEDGE} if self.losses.size else {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if not state:
            self._begin((0, 0))
        for name in KNOWLEDGE:
            if name in state:
                setattr(self, name, state[name].copy())

    def notes(self) -> dict[str, Any]:
        return {"forecast_error": self.error} if self.error else {}


def _features(losses: Floats, sizes: Ints) -> Floats:
    """J x 3."""
    return np.stack([np.ones(len(losses)), _log_loss(losses), np.log(np.maximum(sizes, 1))], axis=1)


def _log_loss(losses: Floats | float) -> Floats:
    return np.asarray(np.log(np.maximum(losses, LEAST_LOSS)), np.float64)


def _bin(ages: Ints) -> Ints:
    return np.searchsorted(AGES, ages, side="right")


def _norm(a: float, b: float, e: float, losses: Floats, sizes: Ints) -> Floats:
    return np.exp(_features(losses, sizes) @ np.array([a, b, e]))
