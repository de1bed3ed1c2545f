"""What a user's own method gets wrong is told when the experiment is read, with the name of its class."""

from typing import Any

import pytest

import fedmux
from conftest import experiment_of
from fedmux.allocation.random import RandomAllocator
from refusals import refused


class Own(fedmux.Method):
    def allocator(self) -> fedmux.Allocator:
        return RandomAllocator("processors")

    def aggregator(self) -> fedmux.Aggregator:
        return fedmux.Unbiased()


class Bare(fedmux.Method):
    pass


class HalfBare(Own):
    aggregator = fedmux.Method.aggregator


class ReturnsTheClass(Own):
    def allocator(self) -> Any:
        return RandomAllocator


class ReturnsNothing(Own):
    def aggregator(self) -> Any:
        return None


class Swapped(Own):
    def aggregator(self) -> Any:
        return self.allocator()


class AllocatorOfLosses(RandomAllocator):
    needs = frozenset({"losses"})  # type: ignore[arg-type]


class Misspelt(Own):
    def allocator(self) -> fedmux.Allocator:
        return AllocatorOfLosses("processors")


class AllocatorThatLearnsText(RandomAllocator):
    learns = "loss"  # type: ignore[assignment]


class LearnsText(Own):
    def allocator(self) -> fedmux.Allocator:
        return AllocatorThatLearnsText("processors")


class AllocatorThatLearnsYes(RandomAllocator):
    learns = True  # type: ignore[assignment]


class LearnsYes(Own):
    def allocator(self) -> fedmux.Allocator:
        return AllocatorThatLearnsYes("processors")


class AllocatorThatLearnsATuple(RandomAllocator):
    learns = ("norm",)  # type: ignore[assignment]


class LearnsATuple(Own):
    def allocator(self) -> fedmux.Allocator:
        return AllocatorThatLearnsATuple("processors")


class AllocatorOfOneArgument(RandomAllocator):
    def learn(self, state: Any) -> None:  # type: ignore[override]
        pass


class LearnsFromNothing(Own):
    def allocator(self) -> fedmux.Allocator:
        return AllocatorOfOneArgument("processors")


class AllocatorOfMemories(RandomAllocator):
    learns = frozenset({"memory"})


class LearnsWhatNobodyKeeps(Own):
    def allocator(self) -> fedmux.Allocator:
        return AllocatorOfMemories("processors")


class AllocatorOfResiduals(RandomAllocator):
    needs = frozenset({"residual"})


class Compares(Own):
    def allocator(self) -> fedmux.Allocator:
        return AllocatorOfResiduals("processors")


@pytest.mark.parametrize(
    ("method", "place", "remedy"),
    [
        (Bare, "Bare has no allocator", "returns a fedmux.Allocator"),
        (HalfBare, "HalfBare has no aggregator", "returns a fedmux.Aggregator"),
        (ReturnsTheClass, "ReturnsTheClass.allocator()", "RandomAllocator(...)"),
        (ReturnsNothing, ("ReturnsNothing.aggregator()", "nothing"), "fedmux.Aggregator"),
        (Swapped, ("Swapped.aggregator()", "RandomAllocator"), "fedmux.Aggregator"),
        (Misspelt, 'AllocatorOfLosses.needs names "losses"', 'did you mean "loss"'),
        (LearnsText, ("AllocatorThatLearnsText.learns", "loss"), 'frozenset({"loss"})'),
        (LearnsYes, ("AllocatorThatLearnsYes.learns", "True"), 'frozenset({"loss"})'),
        (LearnsATuple, ("AllocatorThatLearnsATuple.learns", "norm"), "frozenset"),
        (LearnsFromNothing, "AllocatorOfOneArgument.learn", "def learn(self, state, lessons)"),
        (
            LearnsWhatNobodyKeeps,
            ('AllocatorOfMemories.learns names "memory"', "Unbiased keeps none"),
            '"norm"',
        ),
        (Compares, ('AllocatorOfResiduals.needs names "residual"', "Unbiased keeps none"), '"norm"'),
    ],
)
def test_a_method_that_is_not_whole_is_refused_when_the_experiment_is_read(
    method: type[fedmux.Method], place: Any, remedy: str
) -> None:
    with refused(place, remedy):
        experiment_of(method=method())


def test_a_method_that_is_whole_is_accepted() -> None:
    assert experiment_of(method=Own()).method == Own()


def test_a_class_named_without_its_module_is_told_how_to_name_it() -> None:
    with refused('unknown method "ByPoints"', "module:Class"):
        experiment_of(method="ByPoints")
