"""The figures of a round: what it cost per task, how good the models are, how probabilities are spread."""

from dataclasses import replace

import numpy as np

from fedmux.allocation.plan import Probabilities
from fedmux.fleet import TRAINED_SIGNALS
from fedmux.population import Bools, Floats, Population
from fedmux.runs.rounds import OverTasks, Round, TaskRound
from fedmux.runs.scale import over_tasks_of
from fedmux.tasks.task import Task
from fedmux.training.driver import Played, Surroundings
from fedmux.training.guarding import medians
from fedmux.training.state import State

MOST_DESCRIBED = 10**6  # probabilities whose spread is recorded each round
SCALAR_BYTES = 4  # of a loss or a norm that a client reports
QUANTILES = {
    "minimum": 0.0,
    "p10": 0.1,
    "p25": 0.25,
    "median": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "maximum": 1.0,
}


class Meter(Surroundings):
    # What a round cost

    def costs(self, played: Played, state: State) -> Round:
        """The record of a round, with all that is known before its models are evaluated."""
        entry, setting, back = Round(state.round), self.setting, played.deliveries.back
        entry.tasks = self._work(played, state)
        if notes := state.allocator.notes():
            entry.allocation = notes
            groups = state.allocator.groups()
            if groups is not None and (index := setting.rand_index(groups)):
                notes["rand_index"] = index
        if not setting.constant:
            entry.clients = played.view.population.active_clients
            entry.events = {key: who for key, who in setting.changes().items() if who}
        if self.experiment.dropout or self.experiment.stragglers or not back.all():
            entry.dropped = int((~back).sum())
        if isinstance(played.plan, Probabilities) and played.plan.probability.size <= MOST_DESCRIBED:
            self._describe(played.plan, played.view.population, entry)
        return entry

    def _work(self, played: Played, state: State) -> dict[str, TaskRound]:
        """The costs of a round by task. A client that trained for its signal keeps the update.

        A client whose update was not used counts as if it had finished its job, with its steps also wasted.
        """
        aggregator, people = state.aggregator, played.view.population
        reported, back, assignment = played.reported, played.deliveries.back, played.deliveries.drawn
        step_sizes = aggregator.step_sizes()
        server_bytes = np.array([aggregator.server_bytes(s) for s in range(len(self.fleet.tasks))])
        self.team.sum(server_bytes)
        needs, telling = state.allocator.needs, played.telling
        scalars = len(needs & {"loss", "norm", "residual"}) + 2 * ("projection" in needs)
        trained = bool(needs & TRAINED_SIGNALS)
        work = {}
        for s, task in enumerate(self.fleet.tasks):
            rows = assignment.task == s
            uploads = int((rows & back).sum())
            asked = people.sizes[reported[:, s], s]
            told = np.zeros_like(rows)  # those that send their loss with the update
            if telling is not None:
                told = rows & telling[assignment.client, s]
            passes = people.sizes[assignment.client[told], s]
            if "loss" in needs:
                passes = np.concatenate([passes, asked])
            reports = scalars * len(asked) + int((told & back).sum())
            # Clients that trained for their signal do not train again, if they keep their updates.
            again = ~(reported[assignment.client, s] & self.fleet.keeps_updates) | (not trained)
            sizes = people.sizes[assignment.client, s]
            wasted = int(task.local.steps(sizes[rows & ~back & again]).sum())
            used = int(played.deliveries.steps[s])
            if trained:
                used = int(task.local.steps(asked).sum() + task.local.steps(sizes[rows & back & again]).sum())
            work[task.name] = replace(
                _unscored(task),
                jobs=int(assignment.count[rows & back].sum()),
                uploads=uploads,
                reports=reports,
                upload_bytes=uploads * task.layout.upload_bytes + SCALAR_BYTES * reports,
                gradient_steps=used + wasted,
                wasted_steps=wasted,
                forward_passes=int(task.local.passes(passes).sum()),
                server_bytes=int(server_bytes[s]),
                step_size=float(step_sizes[s]),
                learning_rate=float(played.view.learning_rates[s]),
            )
        return work

    def _describe(self, plan: Probabilities, people: Population, entry: Round) -> None:
        """The spread of probabilities over the clients that have a task, and how many are sure to train."""
        units = np.array([settings.units for settings in self.experiment.tasks])
        entry.probability = {
            task.name: quantiles(plan.probability[people.available[:, s], s])
            for s, task in enumerate(self.fleet.tasks)
            if people.available[:, s].any()
        }
        entry.saturated = int((plan.probability @ units > 1 - 1e-9).sum())

    # How good the models are

    def score(self, entry: Round, state: State, people: Population) -> bool:
        """Add scores, after resetting the tasks that they show to have diverged. Returns whether the
        experiment's target is reached."""
        with self.phase("evaluate"):
            while found := self.evaluate(entry, state, people):
                self.guard.set_back(state, found, state.round)
            state.watch.keep(state.models, np.ones(len(self.fleet.tasks), bool), state.round)
            target = self.experiment.stop.accuracy
            trained = self._running(state) & ~state.watch.pausing
            if target is None or not trained.any():
                return False
            scores = self.fleet.evaluate(state.models, "validation").score
            reached = self.yardstick.progress(scores, "validation") >= target
            return bool(reached[trained].all())

    def evaluate(self, entry: Round, state: State, people: Population) -> dict[int, str]:
        """Add scores and progress; returns the tasks that have diverged, with the reason."""
        entry.measure = over_tasks_of(self.experiment.scales.values())
        part = self.experiment.evaluation.report
        scores = self.fleet.evaluate(state.models, part)
        progress = self.yardstick.progress(scores.score, part)
        running, tasks = self._running(state), self.fleet.tasks
        losses = np.full(len(tasks), np.nan)
        sound = np.isfinite(scores.score) & np.isfinite(scores.loss)
        for s, task in enumerate(tasks):
            if running[s]:
                figures = entry.tasks.setdefault(task.name, _unscored(task))
                if sound[s]:  # JSON has only finite numbers
                    figures.score, figures.loss = float(scores.score[s]), float(scores.loss[s])
                    figures.progress = float(progress[s]) if np.isfinite(progress[s]) else None
        if self.experiment.evaluation.clients:
            clients = self.fleet.client_scores(state.models, people.available)
            losses = medians(clients.loss)
            for s, task in enumerate(tasks):
                if running[s]:
                    entry.tasks[task.name].clients = over_clients(clients.score[:, s])
        if np.isnan(losses[running & ~state.watch.pausing]).any():
            held_out = self.fleet.evaluate(state.models, "glance").loss
            losses = np.where(np.isnan(losses), np.nan_to_num(held_out, nan=np.inf), losses)
        over = progress[running & sound]
        if len(over) and np.isfinite(over).all():
            entry.progress = OverTasks.of(over)
        return state.watch.exploded(np.where(sound, losses, np.inf), state.round)

    def _running(self, state: State) -> Bools:
        """S: the tasks in training in the round just completed."""
        return self.setting.running(max(state.round - 1, 0))


def _unscored(task: Task) -> TaskRound:
    return TaskRound(metric=task.scale.name, plain=task.scale.plain)


def over_clients(scores: Floats) -> dict[str, float]:
    """The spread of a model's scores over clients; NaN entries do not have the task."""
    values = scores[np.isfinite(scores)]
    if len(values) == 0:
        return {}
    return {"mean": float(values.mean()), "std": float(values.std()), **quantiles(values)}


def quantiles(values: Floats) -> dict[str, float]:
    return dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist()))
