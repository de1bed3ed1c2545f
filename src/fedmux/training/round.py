"""One round, the same for every method and every fleet: the server waits for every client it draws."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeVar

from fedmux.allocation import Allocator, Assignment, RoundState, Signals
from fedmux.allocation.contract import check_draw, planned
from fedmux.allocation.plan import Budget, Plan, over_selection
from fedmux.distributed.memory import patiently
from fedmux.population import Bools, Floats
from fedmux.randomness import Stream
from fedmux.training.agreement import same_everywhere
from fedmux.training.deliveries import Deliveries
from fedmux.training.driver import Played, Surroundings, view_of
from fedmux.training.learning import Learning, with_reports
from fedmux.training.state import State
from fedmux.training.telling import note_idle

T = TypeVar("T")


class Synchronous(Surroundings):
    """The driver of synchronous rounds."""

    @cached_property
    def budget(self) -> Budget:
        """More than is wanted, where not everybody is waited for."""
        stragglers = self.experiment.stragglers
        return self.experiment.population.budget.times(stragglers.over_selection if stragglers else 1.0)

    def play(self, state: State) -> Played:
        allocator, aggregator = state.allocator, state.aggregator
        view, reported = self.look(state)
        with self.phase("plan"):
            plan = planned(allocator, view)
            jobs = plan.draw(view.rng(Stream.DRAW))
            check_draw(plan, jobs, view, type(allocator).__name__)
            self.team.agree("assignment", jobs.client, jobs.task, jobs.count)
            view = replace(view, betas=getattr(plan, "betas", None))
        telling = self.telling(allocator, view, reported)
        with self.phase("train"):
            deliveries = self.send(state, view, plan, jobs, telling)  # some drop out, some are late
            sent, rule, stale = deliveries.returned, aggregator.local_rule, aggregator.stale
            learning = Learning(allocator.learns, sent, stale, self.fleet.release)
            for chunk in self.fleet.train(state.models, sent, state.round, rule, telling):
                updates = with_reports(chunk, sent, view.signals)
                learning.note(updates)
                aggregator.add(updates)
                deliveries.note(updates)
            deliveries.close(aggregator.weights, self.fleet.tasks, self.team, self.fleet.journal)
        with self.phase("aggregate"):
            self.team.sum(*aggregator.parts())
            models = self.retried(partial(aggregator.finish, state.models))
            same_everywhere(models, self.team, self.fleet.tasks, type(aggregator).__name__)
            if allocator.learns:
                arrived = deliveries.arrived
                allocator.learn(view, learning.lessons(arrived, state.models, models, self.team))
            state.models = state.watch.unless_paused(state.models, models)
        state.round += 1
        return Played(view, plan, reported, telling, deliveries)

    def look(self, state: State) -> tuple[RoundState, Bools]:
        with self.phase("meet"):
            view = self.meet(state)  # who is present, who joins or leaves
            self.retried(partial(state.aggregator.prepare, view, state.models))
        return self.ask(state, view)  # for losses or norms, if the allocator wants them

    def meet(self, state: State) -> RoundState:
        """The round as allocator and aggregator see it, before clients are asked for anything."""
        people, tasks = self.setting.in_round(state.round), self.fleet.tasks
        running = self.setting.running(state.round).tolist()
        note_idle(state, people, [task.name for task in tasks], running, self.fleet.journal)
        if state.watch.paused:
            people = replace(people, eligible=people.eligible & ~state.watch.pausing)
        return view_of(self.experiment, tasks, people, self.budget, state.round)

    def ask(self, state: State, view: RoundState) -> tuple[RoundState, Bools]:
        """The view with signals, and which pairs sent them (N x S). Silent clients, and tasks that the
        signals show to have diverged, are not drawn this round."""
        allocator, people = state.allocator, view.population
        reported = allocator.reporters(view)
        signals = self.signals(state, reported)
        scores = self.scores(state)
        lost = self.guard.heed(state, people, reported, signals, scores)
        if lost.any() or signals.silent is not None:
            signals, reported = signals.where(~lost), reported & ~lost
            if signals.silent is not None:
                reported = reported & ~signals.silent
                lost = lost | signals.silent
            view = replace(view, population=replace(people, eligible=people.eligible & ~lost))
            state.aggregator.prepare(view, state.models)
            scores = self.scores(state)  # of the models that were set back
        progress = None if scores is None else self.yardstick.progress(scores, "validation")
        return replace(view, signals=signals, accuracies=progress), reported

    def send(
        self, state: State, view: RoundState, plan: Plan, jobs: Assignment, telling: Bools | None
    ) -> Deliveries:
        """Give out the jobs; which of them come back, and their weights, corrected for those that do not."""
        rule, clients, returns = state.aggregator.local_rule, jobs.client, state.returns
        enough = returns.enough(clients, over_selection(plan, self.budget))
        came = returns.draw(state.round)[clients]
        back = self.fleet.send(state.models, jobs, state.round, rule, enough, telling) & came
        if enough is None:  # otherwise it is unknown who would still have come
            came = back
        back = returns.first(clients, back, enough, state.round)
        returned = jobs.only(back, returns.correction(clients, came, back))
        returns.learn(clients, came, back)
        self.retried(partial(state.aggregator.begin, view, returned, state.models))
        content = "the update" if telling is None else "the update or the loss it started from"
        return Deliveries(jobs, back, returned, len(self.fleet.tasks), content)

    @staticmethod
    def telling(allocator: Allocator, view: RoundState, reported: Bools) -> Bools | None:
        """N x S: who sends the loss training starts from with the update; None: nobody needs it."""
        if "loss" not in allocator.learns:
            return None
        available = view.population.available
        return available & ~reported if "loss" in allocator.needs else available

    def signals(self, state: State, asked: Bools) -> Signals:
        with self.phase("signals"):
            return self.fleet.signals(
                state.models, state.allocator.needs, state.round, asked, state.aggregator.stale
            )

    def scores(self, state: State) -> Floats | None:
        """S: scores on the validation part, if the allocator needs them."""
        if "accuracy" not in state.allocator.needs:
            return None
        with self.phase("evaluate"):
            return self.fleet.evaluate(state.models, "validation").score

    def retried(self, work: Callable[[], T]) -> T:
        """Retry when a GPU is out of memory; not with several processes, since all would have to agree."""
        return work() if self.team.size > 1 else patiently(work, self.fleet.release)
