"""An aggregator declares its sums, and they are added up over the processes for it."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import fedmux
from conftest import experiment_of
from fedmux.aggregation.qffl import QFair
from fedmux.methods import registry
from refusals import refused


class PerStep(fedmux.Unbiased):
    """Divides a task's step by the mean number of local steps behind it."""

    summed = ("taken", "jobs")

    def begin(self, state, assignment, models) -> None:
        super().begin(state, assignment, models)
        self.taken, self.jobs = np.zeros(len(models)), [np.zeros(1) for _ in models]

    def take(self, updates) -> None:
        super().take(updates)
        self.taken[updates.task] += updates.steps.sum()
        self.jobs[updates.task] = self.jobs[updates.task] + len(updates.rows)  # another array, the same name

    def step(self, task: int) -> Tensor:
        return super().step(task) / max(1.0, self.taken[task] / max(1.0, self.jobs[task][0]))


class Own(fedmux.Method):
    """A method of a user's."""

    unbiased_when: ClassVar[dict[str, object] | None] = None

    def allocator(self):
        return registry()["random"]().allocator()

    def aggregator(self):
        return PerStep()


def trained(tmp_path, workers: int) -> dict[str, Tensor]:
    experiment = experiment_of(method="test_sums:Own", execution={"workers": workers})
    run = fedmux.run(experiment, tmp_path / f"run-{workers}", notice=lambda line: None)
    return {f"{task}.{name}": value for task in ("a", "b") for name, value in run.model(task).items()}


def test_a_user_s_sums_are_those_of_all_processes(tmp_path):
    alone, together = (trained(tmp_path, workers) for workers in (1, 2))
    assert all(torch.allclose(alone[name], together[name], rtol=1e-4, atol=1e-6) for name in alone)


def test_what_every_class_declares_is_summed_once_however_it_is_inherited():
    aggregator = PerStep()
    aggregator.begin(*begun())
    names = {id(part) for part in aggregator.parts()}
    for value in (aggregator.total, aggregator.taken, *aggregator.jobs, *aggregator.sums):
        assert id(value) in names
    assert len(names) == len(aggregator.parts())


def test_one_aggregator_around_another_sums_what_that_one_does():
    inner = PerStep()
    outer = QFair(inner, 1.0)
    inner.begin(*begun())
    outer._sum, outer._total = np.zeros(2), np.zeros(2)
    assert {id(part) for part in inner.parts()} < {id(part) for part in outer.parts()}


def test_a_sum_that_is_no_array_is_refused_with_its_name():
    aggregator = PerStep()
    aggregator.begin(*begun())
    aggregator.taken = 0.0
    with refused("PerStep.summed names taken, which is a float", "an array"):
        aggregator.parts()


def test_a_sum_that_is_misspelt_is_refused_with_the_name_that_was_meant():
    class Misnamed(PerStep):
        summed = ("takn",)

    aggregator = Misnamed()
    aggregator.begin(*begun())
    with refused("Misnamed.summed names takn", ("begin()", 'did you mean "taken"')):
        aggregator.parts()


def test_one_name_without_its_comma_is_refused():
    with refused("Comma.summed", '("taken",)', TypeError):

        class Comma(PerStep):
            summed = "taken"


def begun():
    from conftest import population, round_state
    from stepping import zero_models

    people = population(tasks=2)
    state = round_state(people)
    plan = registry()["random"]().allocator().plan(state)
    return state, plan.draw(state.rng()), zero_models(2, 3)


def test_an_aggregator_that_would_add_up_by_itself_is_refused():
    with pytest.raises(TypeError, match=r"Old.exchange is not called; name the arrays"):

        class Old(fedmux.Unbiased):
            def exchange(self) -> None:
                """As it was done once."""
