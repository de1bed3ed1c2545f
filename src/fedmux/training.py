"""The round, the same for every method and every fleet, and the state that goes from one to the next."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmux.aggregation.aggregator import Place
from fedmux.allocation import Assignment, RoundState, Signals
from fedmux.allocation.plan import Probabilities, check
from fedmux.assembly import Setting
from fedmux.dynamics import Returns
from fedmux.errors import Interrupted
from fedmux.experiment import Experiment
from fedmux.flat import Model
from fedmux.fleet import Fleet
from fedmux.fleet.engine import Engine, find_device
from fedmux.fleet.simulated import TRAINED_SIGNALS, SimulatedFleet
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream
from fedmux.record import ALLOCATION, POPULATION, Checkpoint, Run, RunFolder
from fedmux.summary import across_tasks, client_distribution, distribution, summarise
from fedmux.team import ALONE, Team, from_environment

MOST_DESCRIBED = 10**6  # probabilities whose spread is recorded each round
SCALAR_BYTES = 4  # of a loss or a norm that a client reports
Observer = Callable[[dict[str, Any]], None]  # called with each round's metrics


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
        self.allocator, self.aggregator = experiment.method.allocator(), experiment.method.aggregator()
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
        self.paused: set[str] = set()
        self.models = [task.layout.read() for task in self.tasks]
        device = self.models[0].parameters.device
        self.aggregator.place = Place(self.scratch, device, team, self.fleet.owned)
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
        jobs, processors = self.experiment.population.jobs, self.population.total_processors
        if jobs is not None and jobs > processors and all(task.cost == 1 for task in self.experiment.tasks):
            notice(
                f"population.jobs = {jobs:g} is more than the {processors} processors there are: all train"
            )
        checkpoint = self._shared(checkpoint)
        if checkpoint is None:
            metrics: dict[str, Any] = {"round": 0, "seconds": 0.0, "tasks": {}}
            self._evaluate(metrics)
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
        while self.rounds < self.experiment.rounds and not self.stopped:
            self.phases = {}
            metrics, jobs = self._round()
            self._tell(metrics)
            metrics["seconds"] = self.seconds = time.perf_counter() - began  # with checkpoints and log
            self._record(metrics, jobs)
            stop = self.team.any(interrupted())
            if self.rounds == self.experiment.rounds or self.stopped:
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
                    **summarise(self.experiment, Run(self.record.path).metrics, self.stopped),
                    **self._privacy(Run(self.record.path).allocation),
                    **self.setting.summary(),
                },
            )
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _privacy(self, jobs: np.ndarray) -> dict[str, Any]:
        """What the client that was drawn most often has given away, for each task with noise or clipping."""
        said = {}
        for s, task in enumerate(self.tasks):
            if task.privacy is not None:
                counted = self.fleet.releases
                releases = (
                    np.bincount(jobs["client"][jobs["task"] == s]) if counted is None else counted[:, s]
                )
                most = int(releases.max(initial=0))
                epsilon = task.privacy.epsilon(most)
                said[task.name] = {**task.privacy.model_dump(), "releases": most, "epsilon": epsilon}
        return {"privacy": said} if said else {}

    def _round(self) -> tuple[dict[str, Any], np.ndarray]:
        with self._phase("meet"):
            state = self._state()
            self.aggregator.prepare(state, self.models)
        needs, reported = self.allocator.needs, self.allocator.reporters(state)
        signals = self._signals(reported)
        if signals.silent is not None:  # gone by now, so not to be drawn
            self.population = replace(self.population, eligible=self.population.eligible & ~signals.silent)
            reported = reported & ~signals.silent
            self.aggregator.prepare(replace(state, population=self.population), self.models)
        state = replace(
            state,
            population=self.population,
            signals=signals,
            accuracies=self._validation() if "accuracy" in needs else None,
        )
        with self._phase("plan"):
            plan = self.allocator.plan(state)
            assignment = plan.draw(state.rng(Stream.DRAW))
            check(plan, assignment, self.population)
            self.team.agree("assignment", assignment.client, assignment.task, assignment.count)
        if self.allocator.learns:  # those who train report as well
            drawn = np.zeros_like(reported)
            drawn[assignment.client, assignment.task] = True
            seen = self._signals(drawn & ~reported)
            self.allocator.learn(state, seen)
            state = replace(state, signals=state.signals.join(seen))
            reported = reported | drawn
        with self._phase("train"):
            back, returned, steps = self._train(state, assignment)
        with self._phase("aggregate"):
            self.team.sum(steps)
            self.aggregator.exchange()
            self.models = self.aggregator.finish(self.models)
        self.rounds += 1
        metrics: dict[str, Any] = {
            "round": self.rounds,
            "tasks": self._work(state, returned, reported, steps),
        }
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
        last = self.rounds == self.experiment.rounds
        if last or self.rounds % self.experiment.evaluation.every == 0:
            with self._phase("evaluate"):
                self._evaluate(metrics)
        if isinstance(plan, Probabilities) and plan.probability.size <= MOST_DESCRIBED:
            metrics |= self._chances(plan)
        metrics["phases"] = self.phases
        return metrics, self._jobs(assignment, back)

    def _chances(self, plan: Probabilities) -> dict[str, Any]:
        """How probabilities are spread over the clients that have a task, and who is sure to train."""
        available = self.population.available
        return {
            "probability": {
                task.name: distribution(plan.probability[available[:, s], s])
                for s, task in enumerate(self.tasks)
                if available[:, s].any()
            },
            "saturated": int((plan.probability.sum(1) > 1 - 1e-9).sum()),
        }

    def _train(self, state: RoundState, assignment: Assignment) -> tuple[Bools, Assignment, Ints]:
        """Which of the jobs came back (J), these with their weights, and the steps of each task (S)."""
        rule = self.aggregator.local_rule
        enough = self.returns.enough(assignment.client)
        back = self.fleet.send(self.models, assignment, self.rounds, rule, enough)
        back &= self.returns.draw(self.rounds)[assignment.client]
        back = self.returns.first(assignment.client, back, enough, self.rounds)
        returned = assignment.only(back, self.returns.correction(assignment.client, back))
        self.returns.learn(assignment.client, back)
        self.aggregator.begin(state, returned, self.models)
        steps = np.zeros(len(self.tasks), np.int64)
        for updates in self.fleet.train(self.models, returned, self.rounds, rule):
            steps[updates.task] += updates.steps.sum()
            self.aggregator.add(updates)
        return back, returned, steps

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
        self._tell_pauses()
        return RoundState(
            round=self.rounds,
            rounds=self.experiment.rounds,
            seed=self.experiment.seed,
            population=self.population,
            budget=self.budget,
            learning_rates=np.array([task.learning_rate(self.rounds) for task in self.tasks]),
            costs=np.array([settings.cost for settings in self.experiment.tasks]),
        )

    def _tell(self, metrics: dict[str, Any] | None = None) -> None:
        """What the fleet has noticed, once; failures also into a round's metrics."""
        failures, self.fleet.failures[:] = self.fleet.failures[:], []
        self.fleet.notices += [str(failure) for failure in failures if failure.kind != "slow"]
        if failures and metrics is not None:
            metrics["failures"] = [asdict(failure) for failure in failures]
        while self.fleet.notices:
            self.notice(self.fleet.notices.pop(0))

    def _tell_pauses(self) -> None:
        """Say once that a task has nobody to train it, and once that it goes on."""
        running, available = self.setting.running(self.rounds), self.population.available
        idle = {task.name for s, task in enumerate(self.tasks) if running[s] and not available[:, s].any()}
        for name in sorted(idle - self.paused):
            self.notice(f'round {self.rounds + 1}: task "{name}" pauses, no client that is there has it')
        for name in sorted(self.paused - idle):
            self.notice(f'round {self.rounds + 1}: task "{name}" goes on')
        self.paused = idle

    def _signals(self, asked: Bools) -> Signals:
        with self._phase("signals"):
            return self.fleet.signals(
                self.models, self.allocator.needs, self.rounds, asked, self.aggregator.stale
            )

    def _work(
        self, state: RoundState, assignment: Assignment, reported: Bools, steps: Ints
    ) -> dict[str, dict[str, Any]]:
        """What each task's round took, by name. A client that trained for its signal keeps the update."""
        step_sizes = self.aggregator.step_sizes()
        server_bytes = np.array([self.aggregator.server_bytes(s) for s in range(len(self.tasks))])
        self.team.sum(server_bytes)
        needs = self.allocator.needs
        scalars = len(needs & {"loss", "norm", "residual"}) + 2 * ("projection" in needs)
        trained = bool(needs & TRAINED_SIGNALS)
        work = {}
        for s, task in enumerate(self.tasks):
            rows = assignment.task == s
            uploads = int(rows.sum())
            asked = self.population.sizes[reported[:, s], s]
            drawn_only = ~(reported[assignment.client[rows], s] & self.fleet.keeps_updates)
            drawn = self.population.sizes[assignment.client[rows][drawn_only], s]
            work[task.name] = {
                "jobs": int(assignment.count[rows].sum()),
                "uploads": uploads,
                "reports": scalars * len(asked),
                "upload_bytes": uploads * task.layout.upload_bytes + SCALAR_BYTES * scalars * len(asked),
                "gradient_steps": int(task.local.steps(asked).sum() + task.local.steps(drawn).sum())
                if trained
                else int(steps[s]),
                "forward_passes": int(task.local.passes(asked).sum())
                if "loss" in self.allocator.needs
                else 0,
                "server_bytes": int(server_bytes[s]),
                "step_size": float(step_sizes[s]),
                "learning_rate": float(state.learning_rates[s]),
            }
        return work

    def _evaluate(self, metrics: dict[str, Any]) -> None:
        """Add accuracies to a round's metrics, and see whether the target is reached."""
        scores = self.fleet.evaluate(self.models, "test")
        running = self.setting.running(max(self.rounds - 1, 0))
        for s, task in enumerate(self.tasks):
            if not running[s]:
                continue
            values = metrics["tasks"].setdefault(task.name, {})
            values["accuracy"], values["loss"] = float(scores.accuracy[s]), float(scores.loss[s])
        if self.experiment.evaluation.clients:
            clients = self.fleet.client_accuracies(self.models, self.population.available)
            for s, task in enumerate(self.tasks):
                if running[s]:
                    metrics["tasks"][task.name]["clients"] = client_distribution(clients[:, s])
        if running.any():
            metrics["accuracy"] = across_tasks(scores.accuracy[running])
        target = self.experiment.stop.accuracy
        if target is not None and self.rounds:
            self.stopped = bool((self.fleet.evaluate(self.models, "validation").accuracy >= target).all())

    def _jobs(self, assignment: Assignment, back: Bools) -> np.ndarray:
        """Every job that was drawn; the weight of one that did not return is 0."""
        jobs = np.zeros(len(assignment), ALLOCATION)
        jobs["round"] = self.rounds
        jobs["weight"][back] = self.aggregator.weights
        for name in ("client", "task", "count", "probability"):
            jobs[name] = getattr(assignment, name)
        return jobs

    def _record(self, metrics: dict[str, Any], jobs: np.ndarray | None = None) -> None:
        if self.record:
            self.record.append(metrics, jobs)
        for observer in self.observers:
            observer(metrics)

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
        outside = {"seconds": self.seconds, "paused": sorted(self.paused)}
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
        self.paused = set(checkpoint.state["paused"])
        self.models = [
            Model(
                tensors[f"model.{task.name}.parameters"].to(start.parameters),
                tensors[f"model.{task.name}.buffers"].to(start.buffers),
            )
            for task, start in zip(self.tasks, self.models)
        ]
        self.aggregator.restore(_under("aggregator.", tensors))
        for prefix, part in (("allocator.", self.allocator), ("returns.", self.returns)):
            part.restore({key: value.numpy() for key, value in _under(prefix, tensors).items()})


def engine_of(experiment: Experiment, team: Team = ALONE) -> Engine:
    """The engine that an experiment asks for, as far as it is here."""
    settings = experiment.execution
    local_rank = int(os.environ.get("LOCAL_RANK", 0)) if from_environment() else team.rank
    return Engine(find_device(settings.device, local_rank), settings.precision, settings.local)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
