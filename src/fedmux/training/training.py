"""The round, the same for every method and every fleet, and the state that goes from one to the next."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation.aggregator import Place
from fedmux.allocation import Assignment, RoundState, Signals
from fedmux.allocation.plan import Plan, Probabilities, check, over_selection
from fedmux.distributed.devices import find_device
from fedmux.distributed.memory import nothing, patiently
from fedmux.distributed.team import ALONE, Team, from_environment
from fedmux.dynamics import Returns
from fedmux.errors import FedmuxError, Interrupted
from fedmux.experiment import Experiment
from fedmux.fleet import SIGNALS, TRAIN, Fleet
from fedmux.fleet.engine import Engine
from fedmux.fleet.journal import not_finite, told
from fedmux.fleet.simulated import TRAINED_SIGNALS, SimulatedFleet
from fedmux.model import Model
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream
from fedmux.runs.layout import ALLOCATION, POPULATION
from fedmux.runs.reading import Run
from fedmux.runs.rounds import Divergence, Failure, Round
from fedmux.runs.writing import Checkpoint, RunFolder
from fedmux.training.divergence import REFUSALS, Watch
from fedmux.training.setting import Setting
from fedmux.training.summary import across_tasks, client_distribution, distribution, summarise

MOST_DESCRIBED = 10**6  # probabilities whose spread is recorded each round
SCALAR_BYTES = 4  # of a loss or a norm that a client reports
T = TypeVar("T")
Observer = Callable[[Round], None]  # called after each round


class Training:
    """A run in progress: the models, the method's two halves, the fleet and the record."""

    def __init__(
        self,
        experiment: Experiment,
        setting: Setting,
        record: RunFolder | None,  # of the team's first process
        observers: Sequence[Observer],
        team: Team = ALONE,
        fleet: Fleet | None = None,  # the simulated one
    ) -> None:
        self.experiment, self.record, self.observers, self.team = experiment, record, observers, team
        method, self.said = experiment.method.fitted(experiment.metrics)
        self.allocator, self.aggregator = method.allocator(), method.aggregator()
        self.fleet = fleet or self._simulated(setting)
        self.setting, self.population, self.tasks = setting, setting.population, self.fleet.tasks
        own = Path(tempfile.gettempdir()) / f"fedmux-scratch-{os.getpid()}"  # made when it is needed
        self.scratch = record.path / "scratch" if record else own
        self.returns = Returns(
            experiment.dropout, self.population.clients, experiment.seed, experiment.stragglers
        )
        stragglers = experiment.stragglers
        self.budget = experiment.population.budget.times(stragglers.over_selection if stragglers else 1.0)
        self.notice: Callable[[str], None] = print
        self.idle: set[str] = set()  # tasks that nobody who is there has
        self.models = [task.layout.read() for task in self.tasks]
        self.watch = Watch(self.models)
        self.diverged: list[Divergence] = []  # in this round
        self._named: set[tuple[str, str, str]] = set()  # failures that are told once
        device = self.models[0].parameters.device
        release = self.fleet.release if isinstance(self.fleet, SimulatedFleet) else nothing
        self.aggregator.place = Place(self.scratch, device, team, self.fleet.owned, release)
        self.rounds = 0  # completed
        self.seconds = 0.0
        self.saved = time.monotonic()  # when the last checkpoint was
        self.phases: dict[str, float] = {}
        self.stopped = False
        if record:
            setting.save(record.path / POPULATION)

    def _simulated(self, setting: Setting) -> Fleet:
        engine = engine_of(self.experiment, self.team)
        sticky = self.aggregator.remembers or bool(self.allocator.needs & TRAINED_SIGNALS)
        return SimulatedFleet(setting.tasks, self.experiment.seed, engine, self.team, sticky)

    def start(self, notice: Callable[[str], None]) -> None:
        """From the newest sound checkpoint, or from the beginning."""
        self.notice = notice
        checkpoint, lengths, damaged = self.record.latest() if self.record else (None, {}, [])
        for line in damaged:
            notice(f"{line}; going back to {f'round {checkpoint.rounds}' if checkpoint else 'the start'}")
        if self.record:
            self.record.open_logs(lengths)
        self._tell()
        if self.said:
            notice(self.said)
        jobs, processors = self.experiment.population.jobs, self.population.total_processors
        if jobs is not None and jobs > processors and all(task.cost == 1 for task in self.experiment.tasks):
            notice(
                f"population.jobs = {jobs:g} is more than the {processors} processors there are: all train"
            )
        checkpoint = self._shared(checkpoint)
        if checkpoint is None:
            self.watch.naive = self._naive()
            metrics: dict[str, Any] = {"round": 0, "seconds": 0.0, "tasks": {}}
            for s, reason in self._evaluate(metrics).items():
                raise FedmuxError(
                    f'task "{self.tasks[s].name}": {reason} before any training; check its data, its loss '
                    "and initial_weights"
                )
            self._record(metrics)
        else:
            self._restore(checkpoint)

    def _shared(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """What the first process has read, at all of them."""
        rounds = None if checkpoint is None else checkpoint.rounds
        tensors, table = self.team.share(
            {} if checkpoint is None else checkpoint.tensors,
            {"rounds": rounds, "state": {} if checkpoint is None else checkpoint.state},
        )
        return None if table["rounds"] is None else Checkpoint(table["rounds"], tensors, table["state"])

    def loop(self, interrupted: Callable[[], bool]) -> None:
        began = time.perf_counter() - self.seconds
        while not self._over():
            self.phases = {}
            metrics, jobs = self._round()
            self._tell(metrics)
            metrics["seconds"] = self.seconds = time.perf_counter() - began  # with checkpoints and log
            self._record(metrics, jobs)
            stop = self.team.any(interrupted())
            if self._over():
                break
            if stop or self._due():
                self.save()
                self.saved = time.monotonic()
            if stop:
                where = self.record.path if self.record else "RUN"
                raise Interrupted(
                    f"stopped after round {self.rounds} of {self.experiment.rounds}; "
                    f"`fedmux resume {where}` continues"
                )
        if self.record:
            self.record.finish(
                {task.name: task.weights(model) for task, model in zip(self.tasks, self.models)},
                {
                    **summarise(
                        self.experiment,
                        [entry.line() for entry in Run(self.record.path).metrics],
                        self.stopped,
                    ),
                    **self._divergences(),
                    **self._privacy(Run(self.record.path).allocation),
                    **self.setting.summary(),
                },
            )
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _naive(self) -> Floats:
        """S: the loss of models whose weights are all zero, on a few points; 0 where it cannot be had."""
        zeros = [Model(torch.zeros_like(model.parameters), model.buffers) for model in self.models]
        try:
            return np.nan_to_num(self.fleet.evaluate(zeros, "glance").loss, posinf=0.0, neginf=0.0)
        except Exception:  # a user's module may not know what to do with them
            return np.zeros(len(zeros))

    def _over(self) -> bool:
        """The last round is done, the target is reached, or there is no task left to train."""
        return self.rounds >= self.experiment.rounds or self.stopped or bool(self.watch.pausing.all())

    def _divergences(self) -> dict[str, Any]:
        """What a summary says of the tasks that were paused."""
        paused = {each.task: asdict(each) for each in self.watch.paused.values()}
        return {"diverged": paused} if paused else {}

    def _privacy(self, jobs: np.ndarray) -> dict[str, Any]:
        """What the client that was drawn most often has given away, for each task with noise or clipping."""
        said = {}
        for s, task in enumerate(self.tasks):
            if task.privacy is not None:
                counted = getattr(self.fleet, "releases", None)
                releases = (
                    np.bincount(jobs["client"][jobs["task"] == s]) if counted is None else counted[:, s]
                )
                most = int(releases.max(initial=0))
                epsilon = task.privacy.epsilon(most)
                said[task.name] = {**task.privacy.model_dump(), "releases": most, "epsilon": epsilon}
        return {"privacy": said} if said else {}

    def _round(self) -> tuple[dict[str, Any], np.ndarray]:
        self.diverged = []
        with self._phase("meet"):
            state = self._state()
            self._patiently(partial(self.aggregator.prepare, state, self.models))
        needs, reported = self.allocator.needs, self.allocator.reporters(state)
        signals = self._signals(reported)
        accuracies = self._validation() if "accuracy" in needs else None
        lost = self._heed(reported, signals, accuracies)
        if lost.any() or signals.silent is not None:  # gone by now, so not to be drawn
            signals, reported = signals.where(~lost), reported & ~lost
            if signals.silent is not None:
                reported = reported & ~signals.silent
                lost = lost | signals.silent
            self.population = replace(self.population, eligible=self.population.eligible & ~lost)
            self.aggregator.prepare(replace(state, population=self.population), self.models)
            if accuracies is not None:  # of the models that were set back
                accuracies = self._validation()
        state = replace(state, population=self.population, signals=signals, accuracies=accuracies)
        with self._phase("plan"):
            plan = self.allocator.plan(state)
            assignment = plan.draw(state.rng(Stream.DRAW))
            check(plan, assignment, self.population)
            self.team.agree("assignment", assignment.client, assignment.task, assignment.count)
        answering, late = np.ones(len(assignment), bool), {}
        if self.allocator.learns:  # those who train report as well
            drawn = np.zeros_like(reported)
            drawn[assignment.client, assignment.task] = True
            earlier, asked = len(self.fleet.journal.failures), drawn & ~reported
            seen = self._signals(asked)
            if seen.silent is not None:
                answering, asked = ~seen.silent[assignment.client, assignment.task], asked & ~seen.silent
            there = self.population.available.sum(0)
            late = self.watch.refusals(SIGNALS, asked.sum(0), self._refused(SIGNALS, earlier), there)
            self.allocator.learn(state, seen)
            state = replace(state, signals=state.signals.join(seen))
            reported = reported | drawn
        with self._phase("train"):
            back, returned, steps = self._train(state, plan, assignment, answering)
        with self._phase("aggregate"):
            self.team.sum(steps)
            self.aggregator.exchange()
            finish = partial(self.aggregator.finish, self.models)
            paused, models = self.watch.pausing, self._patiently(finish)
            self.models = [old if paused[s] else new for s, (old, new) in enumerate(zip(self.models, models))]
        self.rounds += 1
        metrics: dict[str, Any] = {
            "round": self.rounds,
            "tasks": self._work(state, assignment, back, reported, steps),
        }
        sound, there = np.bincount(returned.task, minlength=len(self.tasks)), self.population.available.sum(0)
        found = late | self.watch.refusals(TRAIN, sound, self._refused(TRAIN), there)
        self._diverge(found | self.watch.broken(self.models), self.rounds)
        if notes := self.allocator.notes():
            metrics["allocation"] = notes
            if "groups" in notes and (index := self.setting.rand_index(notes["groups"])):
                notes["rand_index"] = index
        if not self.setting.constant:
            metrics["clients"] = self.population.active_clients
            if changes := {key: value for key, value in self.setting.changes().items() if value}:
                metrics["events"] = changes
        if self.experiment.dropout or self.experiment.stragglers or not back.all():
            metrics["dropped"] = int((~back).sum())
        if self._over() or self.rounds % self.experiment.evaluation.every == 0:
            with self._phase("evaluate"):
                self._score(metrics)
        if isinstance(plan, Probabilities) and plan.probability.size <= MOST_DESCRIBED:
            metrics |= self._chances(plan)
        for s, divergence in self.watch.paused.items():
            metrics["tasks"][self.tasks[s].name]["diverged"] = divergence.round
        if self.diverged:
            metrics["diverged"] = [asdict(divergence) for divergence in self.diverged]
        metrics["phases"] = self.phases
        return metrics, self._jobs(assignment, back)

    def _heed(self, asked: Bools, signals: Signals, accuracies: Floats | None) -> Bools:
        """Set back the tasks that what is known before the draw shows to have diverged; which these are (S).

        Losses of a model that has not diverged say that it is sound.
        """
        found: dict[int, str] = {}
        if signals.losses is not None:
            losses = _median(signals.losses)
            found |= self.watch.exploded(losses, self.rounds)
            self.watch.keep(self.models, np.isfinite(losses) & ~_at(found, len(self.tasks)), self.rounds)
        answered = asked if signals.silent is None else asked & ~signals.silent
        there = self.population.available.sum(0)
        found |= self.watch.refusals(SIGNALS, answered.sum(0), self._refused(SIGNALS), there)
        if accuracies is not None:
            bad = ~np.isfinite(accuracies) & ~self.watch.pausing
            found |= dict.fromkeys(
                np.flatnonzero(bad).tolist(), "its score on the validation part is not finite"
            )
        return self._diverge(found, self.rounds + 1)

    def _refused(self, phase: str, since: int = 0) -> list[set[str]]:
        """Of each task: clients whose answers in a phase were refused as not finite, or far too large."""
        refused = [f for f in self.fleet.journal.failures[since:] if f.phase == phase and f.kind in REFUSALS]
        return [{f.client for f in refused if f.task == task.name} for task in self.tasks]

    def _patiently(self, work: Callable[[], T]) -> T:
        """Again where a GPU has no memory left; with several processes not, since all would have to agree."""
        return work() if self.team.size > 1 else patiently(work, self.aggregator.place.release)

    def _diverge(self, found: dict[int, str], round: int) -> Bools:
        """Set tasks back to their last sound models; pause them, or go on with half the learning rate."""
        stop, watch = self.experiment.stop, self.watch
        for s, reason in sorted(found.items()):
            task = self.tasks[s]
            paused = stop.divergence == "pause" or int(watch.retries[s]) >= stop.retries
            rate = task.learning_rate(round - 1)
            if not paused:
                watch.retries[s] += 1
            at, retries = int(watch.sound_round[s]), int(watch.retries[s])
            divergence = Divergence(task.name, round, reason, at, rate, retries, paused)
            if stop.divergence == "stop":
                raise FedmuxError(
                    f'task "{task.name}" has diverged in round {round}: {reason}; lower learning_rate or set '
                    'clip, or let the others go on with [stop] divergence = "pause"'
                )
            self.diverged.append(divergence)
            self.models[s] = watch.sound[s]
            watch.forget(s)
            if paused:
                watch.paused[s] = divergence
            else:
                task.slow_down(retries)
            for half in (self.allocator, self.aggregator):
                half.forget(s)
        return _at(found, len(self.tasks))

    def _chances(self, plan: Probabilities) -> dict[str, Any]:
        """How probabilities are spread over the clients that have a task, and who is sure to train."""
        available = self.population.available
        units = np.array([settings.units for settings in self.experiment.tasks])
        return {
            "probability": {
                task.name: distribution(plan.probability[available[:, s], s])
                for s, task in enumerate(self.tasks)
                if available[:, s].any()
            },
            "saturated": int((plan.probability @ units > 1 - 1e-9).sum()),
        }

    def _train(
        self, state: RoundState, plan: Plan, assignment: Assignment, answering: Bools
    ) -> tuple[Bools, Assignment, Ints]:
        """Which of the jobs came back sound (J), these with their weights, and the steps of each task (S)."""
        rule, clients = self.aggregator.local_rule, assignment.client
        enough = self.returns.enough(clients, over_selection(plan, self.budget))
        came = self.returns.draw(self.rounds)[clients] & answering
        back = self.fleet.send(self.models, assignment, self.rounds, rule, enough) & came
        if enough is None:  # else nobody knows who would still have come
            came = back
        back = self.returns.first(clients, back, enough, self.rounds)
        returned = assignment.only(back, self.returns.correction(clients, came, back))
        self.returns.learn(clients, came, back)
        self._patiently(partial(self.aggregator.begin, state, returned, self.models))
        steps, delivered = np.zeros(len(self.tasks), np.int64), np.zeros(len(returned), np.int64)
        for updates in self.fleet.train(self.models, returned, self.rounds, rule):
            steps[updates.task] += updates.steps.sum()
            delivered[updates.rows] = 1
            self.aggregator.add(updates)
        self.team.sum(delivered)
        for row in np.flatnonzero(delivered == 0).tolist():  # only simulated ones: real clients' are not back
            name = self.tasks[returned.task[row]].name
            refused = not_finite(int(returned.client[row]), name, TRAIN, "the update is not finite")
            self.fleet.journal.fail(refused)
        self.weights = np.zeros(len(assignment))
        self.weights[back] = self.aggregator.weights * delivered
        back[back] = delivered > 0
        return back, returned.only(delivered > 0, np.ones(self.population.clients)), steps

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Seconds of this round by what they went into."""
        began = time.perf_counter()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began

    def _validation(self) -> Floats:
        with self._phase("evaluate"):
            return self.fleet.evaluate(self.models, "validation").accuracy

    def _state(self) -> RoundState:
        self.population = self.setting.in_round(self.rounds)
        self._tell_idle()
        if self.watch.paused:
            self.population = replace(
                self.population, eligible=self.population.eligible & ~self.watch.pausing
            )
        return RoundState(
            round=self.rounds,
            rounds=self.experiment.rounds,
            seed=self.experiment.seed,
            population=self.population,
            budget=self.budget,
            learning_rates=np.array([task.learning_rate(self.rounds) for task in self.tasks]),
            costs=np.array([settings.cost for settings in self.experiment.tasks]),
            momenta=np.array([task.local.momentum for task in self.tasks]),
            names=tuple(task.name for task in self.tasks),
            units=np.array([settings.units for settings in self.experiment.tasks]),
        )

    def _tell(self, metrics: dict[str, Any] | None = None) -> None:
        """What the fleet has noticed, once; failures also into a round's metrics."""
        journal = self.fleet.journal
        failures = journal.take_failures()
        if failures and metrics is not None:
            metrics["failures"] = [asdict(failure) for failure in failures]
        for line in [
            *journal.take_notices(),
            *self._lines(failures),
            *map(str, self.diverged if metrics else []),
        ]:
            self.notice(line)

    def _lines(self, failures: list[Failure]) -> list[str]:
        """One for all clients of a task that failed alike; what is not finite is told once of a client."""
        alike: dict[tuple[str, str, str], list[Failure]] = {}
        for failure in failures:
            who = (failure.client, failure.task, failure.phase)
            if failure.kind == "slow" or (failure.kind == "not-finite" and who in self._named):
                continue
            self._named.add(who)
            alike.setdefault((failure.task, failure.phase, failure.reason), []).append(failure)
        return [told(group) for group in alike.values()]

    def _tell_idle(self) -> None:
        """Say once that a task has nobody to train it, and once that it goes on."""
        running, available = self.setting.running(self.rounds), self.population.available
        idle = {task.name for s, task in enumerate(self.tasks) if running[s] and not available[:, s].any()}
        for name in sorted(idle - self.idle):
            self.notice(f'round {self.rounds + 1}: task "{name}" pauses, no client that is there has it')
        for name in sorted(self.idle - idle):
            self.notice(f'round {self.rounds + 1}: task "{name}" goes on')
        self.idle = idle

    def _signals(self, asked: Bools) -> Signals:
        with self._phase("signals"):
            return self.fleet.signals(
                self.models, self.allocator.needs, self.rounds, asked, self.aggregator.stale
            )

    def _work(
        self, state: RoundState, assignment: Assignment, back: Bools, reported: Bools, steps: Ints
    ) -> dict[str, dict[str, Any]]:
        """What each task's round took, by name. A client that trained for its signal keeps the update.

        One whose update was not taken is counted as if it had done its job, and its steps as wasted too.
        """
        step_sizes = self.aggregator.step_sizes()
        server_bytes = np.array([self.aggregator.server_bytes(s) for s in range(len(self.tasks))])
        self.team.sum(server_bytes)
        needs = self.allocator.needs
        scalars = len(needs & {"loss", "norm", "residual"}) + 2 * ("projection" in needs)
        trained = bool(needs & TRAINED_SIGNALS)
        work = {}
        for s, task in enumerate(self.tasks):
            rows = assignment.task == s
            uploads = int((rows & back).sum())
            asked = self.population.sizes[reported[:, s], s]
            # Those who trained for their signal do not train again, if they keep what they did.
            again = ~(reported[assignment.client, s] & self.fleet.keeps_updates) | (not trained)
            sizes = self.population.sizes[assignment.client, s]
            wasted = int(task.local.steps(sizes[rows & ~back & again]).sum())
            used = int(steps[s])
            if trained:
                used = int(task.local.steps(asked).sum() + task.local.steps(sizes[rows & back & again]).sum())
            work[task.name] = {
                "jobs": int(assignment.count[rows & back].sum()),
                "uploads": uploads,
                "reports": scalars * len(asked),
                "upload_bytes": uploads * task.layout.upload_bytes + SCALAR_BYTES * scalars * len(asked),
                "gradient_steps": used + wasted,
                "wasted_steps": wasted,
                "forward_passes": int(task.local.passes(asked).sum()) if "loss" in needs else 0,
                "server_bytes": int(server_bytes[s]),
                "step_size": float(step_sizes[s]),
                "learning_rate": float(state.learning_rates[s]),
            }
        return work

    def _score(self, metrics: dict[str, Any]) -> None:
        """Add accuracies to a round's metrics; a task that they show to have diverged is set back first."""
        while found := self._evaluate(metrics):
            self._diverge(found, self.rounds)
        self.watch.keep(self.models, np.ones(len(self.tasks), bool), self.rounds)
        target = self.experiment.stop.accuracy
        trained = self.setting.running(max(self.rounds - 1, 0)) & ~self.watch.pausing
        if target is not None and trained.any():
            reached = self.fleet.evaluate(self.models, "validation").accuracy >= target
            self.stopped = bool(reached[trained].all())

    def _evaluate(self, metrics: dict[str, Any]) -> dict[int, str]:
        """Add accuracies to a round's metrics; tasks that have diverged, with the reason."""
        scores = self.fleet.evaluate(self.models, self.experiment.evaluation.report)
        running = self.setting.running(max(self.rounds - 1, 0))
        losses = np.full(len(self.tasks), np.nan)
        sound = np.isfinite(scores.accuracy) & np.isfinite(scores.loss)
        for s, task in enumerate(self.tasks):
            if running[s]:
                values = metrics["tasks"].setdefault(task.name, {})
                if sound[s]:  # JSON has no other numbers
                    values["accuracy"], values["loss"] = float(scores.accuracy[s]), float(scores.loss[s])
        if self.experiment.evaluation.clients:
            clients = self.fleet.client_scores(self.models, self.population.available)
            losses = _median(clients.loss)
            for s, task in enumerate(self.tasks):
                if running[s]:
                    metrics["tasks"][task.name]["clients"] = client_distribution(clients.accuracy[:, s])
        if np.isnan(losses[running & ~self.watch.pausing]).any():
            held_out = self.fleet.evaluate(self.models, "glance").loss
            losses = np.where(np.isnan(losses), np.nan_to_num(held_out, nan=np.inf), losses)
        if (running & sound).any():
            metrics["accuracy"] = across_tasks(scores.accuracy[running & sound])
        return self.watch.exploded(np.where(sound, losses, np.inf), self.rounds)

    def _jobs(self, assignment: Assignment, back: Bools) -> np.ndarray:
        """Every job that was drawn; the weight of one that did not return is 0."""
        jobs = np.zeros(len(assignment), ALLOCATION)
        jobs["round"], jobs["weight"] = self.rounds, self.weights
        for name in ("client", "task", "count", "probability"):
            jobs[name] = getattr(assignment, name)
        return jobs

    def _record(self, metrics: dict[str, Any], jobs: np.ndarray | None = None) -> None:
        if self.record:
            self.record.append(metrics, jobs)
        entry = Round.read(metrics)
        assert entry is not None
        for observer in self.observers:
            observer(entry)

    def save(self) -> None:
        tensors = {f"aggregator.{key}": value for key, value in self.aggregator.state().items()}
        if self.record is None:  # only the aggregator's state is divided
            return
        for prefix, state in (("allocator", self.allocator.state()), ("returns", self.returns.state())):
            for key, value in state.items():
                tensors[f"{prefix}.{key}"] = torch.from_numpy(value)
        for task, model in zip(self.tasks, self.models):
            tensors[f"model.{task.name}.parameters"] = model.parameters.cpu()
            tensors[f"model.{task.name}.buffers"] = model.buffers.cpu()
        tensors |= {f"sound.{key}": value for key, value in self.watch.tensors(self.models).items()}
        outside = {"seconds": self.seconds, "paused": sorted(self.idle), "watch": self.watch.state()}
        self.record.save(Checkpoint(self.rounds, tensors, outside))

    def _due(self) -> bool:
        """Whether it is time for a checkpoint: by rounds, or by the first clock that says so."""
        output = self.experiment.output
        if output.checkpoint_seconds is None:
            return self.rounds % int(output.checkpoint_every) == 0
        return self.team.any(time.monotonic() - self.saved >= output.checkpoint_seconds)

    def _restore(self, checkpoint: Checkpoint) -> None:
        tensors = checkpoint.tensors
        self.rounds = checkpoint.rounds
        self.seconds = checkpoint.state["seconds"]
        self.idle = set(checkpoint.state["paused"])
        self.models = [
            Model(
                tensors[f"model.{task.name}.parameters"].to(start.parameters),
                tensors[f"model.{task.name}.buffers"].to(start.buffers),
            )
            for task, start in zip(self.tasks, self.models)
        ]
        self.watch.restore(checkpoint.state.get("watch", {}), _under("sound.", tensors), self.models)
        for task, retries in zip(self.tasks, self.watch.retries.tolist()):
            task.slow_down(retries)
        self.aggregator.restore(_under("aggregator.", tensors))
        for prefix, part in (("allocator.", self.allocator), ("returns.", self.returns)):
            part.restore({key: value.numpy() for key, value in _under(prefix, tensors).items()})


def _median(values: Floats) -> Floats:
    """S: over the clients (N x S) whose values are known; NaN without any."""
    return np.array(
        [
            np.median(column[~np.isnan(column)]) if not np.isnan(column).all() else np.nan
            for column in values.T
        ]
    )


def _at(tasks: Iterable[int], count: int) -> Bools:
    """S: true at the tasks given."""
    return np.isin(np.arange(count), list(tasks))


def engine_of(experiment: Experiment, team: Team = ALONE) -> Engine:
    """The engine that an experiment asks for, as far as it is here."""
    settings = experiment.execution
    local_rank = int(os.environ.get("LOCAL_RANK", 0)) if from_environment() else team.rank
    return Engine(find_device(settings.device, local_rank), settings.precision, settings.local)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
