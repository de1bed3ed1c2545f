"""What a method remembers goes into a checkpoint; what no checkpoint can hold is refused by its name."""

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fedmux
from conftest import experiment_of, resumes_to_the_same_bits
from fedmux.allocation.random import RandomAllocator
from refusals import refused


class Keeps(RandomAllocator):
    """Remembers what it is given."""

    def __init__(self, kept: Any) -> None:
        super().__init__("processors")
        self.kept = kept

    def state(self) -> dict[str, Any]:
        return {"kept": self.kept}


class KeepsSums(fedmux.Unbiased):
    def state(self) -> dict[str, Any]:
        return {"kept": np.zeros(2)}


class ListKeeper(fedmux.Method):
    def allocator(self) -> fedmux.Allocator:
        return Keeps([1, 2])

    def aggregator(self) -> fedmux.Aggregator:
        return fedmux.Unbiased()


class TextKeeper(ListKeeper):
    def allocator(self) -> fedmux.Allocator:
        return Keeps(np.array(["a", "b"]))


class ArrayKeeper(ListKeeper):
    def allocator(self) -> fedmux.Allocator:
        return RandomAllocator("processors")

    def aggregator(self) -> fedmux.Aggregator:
        return KeepsSums()


@pytest.mark.parametrize(
    ("method", "place", "remedy"),
    [
        (ListKeeper, ("Keeps.state()", '"kept"', "list"), "NumPy array"),
        (TextKeeper, ("Keeps.state()", '"kept"', "<U1"), "numbers"),
        (ArrayKeeper, ("KeepsSums.state()", '"kept"', "ndarray"), "tensor"),
    ],
)
def test_what_no_checkpoint_can_hold_is_refused(
    method: type[fedmux.Method], place: Any, remedy: str, tmp_path: Any
) -> None:
    with refused(place, remedy):
        fedmux.run(experiment_of(method=method()), tmp_path / "run", notice=lambda line: None)


PAGE = (Path(__file__).parents[2] / "docs" / "add-a-method.md").read_text("utf-8")


class Smooth(ListKeeper):
    """The allocator with memory of the documents."""

    section: ClassVar[str] = "An allocator with memory"
    example: ClassVar[str] = "SmoothLoss"

    def allocator(self) -> fedmux.Allocator:
        [code] = re.findall(rf"### {self.section}\n.*?```python\n(.*?)```", PAGE, re.DOTALL)
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(code, "add-a-method.md", "exec"), names)
        made: fedmux.Allocator = names[self.example]()
        return made


class Learner(Smooth):
    section: ClassVar[str] = "An allocator that learns from what came back"
    example: ClassVar[str] = "NormsSeen"


@pytest.mark.parametrize("method", [Smooth, Learner])
def test_the_allocators_with_memory_of_the_documents_resume_to_the_same_bits(
    method: type[Smooth], tmp_path: Path
) -> None:
    resumes_to_the_same_bits(experiment_of(method=method()), tmp_path, 3)
    allocator = method().allocator()
    allocator.restore({})
    allocator.forget(0)
    assert allocator.state() == {}
