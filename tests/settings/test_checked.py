"""What a user sets in Python: the same line as from a file, finite numbers everywhere."""

import math
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import ValidationError

import fedmux
from conftest import experiment_of, table
from fedmux.errors import FedmuxError
from fedmux.experiment import Execution, LearningRate, PopulationSettings
from fedmux.experiment.mistakes import validated
from fedmux.methods import registry
from fedmux.privacy import Privacy
from fedmux.settings import Checked
from refusals import refused


def from_python(changes: dict[str, Any]) -> str:
    """The message without its beginning, which names the class."""
    with pytest.raises(FedmuxError) as error:
        fedmux.Experiment(**{**table(), **changes})
    return str(error.value).removeprefix("Experiment: ")


def from_a_file(changes: dict[str, Any]) -> str:
    with pytest.raises(FedmuxError) as error:
        experiment_of(**changes)
    return str(error.value).removeprefix("test: ")


TASK = {"name": "a", "data": "digits", "model": "mlp", "learning_rate": 0.1}


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 0},
        {"rouds": 3},
        {"population": {"clients": 0}},
        {"method": {"name": "random", "participation": "people"}},
        {"method": "randm"},
        {"task": [TASK, {**TASK, "learning_rate": -1}]},
        {"task": [TASK, TASK]},
        {"execution": {"workers": "many"}},
        {"name": "../up"},
    ],
    ids=str,
)
def test_a_wrong_value_from_python_gets_the_line_of_the_command_line(changes: dict[str, Any]) -> None:
    assert "\n" not in from_python(changes)
    assert from_python(changes) == from_a_file(changes)


def test_tasks_may_be_called_by_either_name_and_given_as_a_tuple() -> None:
    given = {**table(), "tasks": (TASK, {**TASK, "name": "b", "batch_size": 0})}
    del given["task"]
    with refused(('task 2 "b"', "batch_size"), "greater than or equal to 1"):
        fedmux.Experiment(**given)


def test_a_section_on_its_own_says_what_it_is() -> None:
    with refused(("PopulationSettings", "clients"), "greater than or equal to 1"):
        PopulationSettings(clients=0)
    with refused(("Execution", "workers"), "whole number"):
        Execution(workers=0)
    with refused(("LearningRate", '"initial"'), "add it"):
        LearningRate()
    with refused(("Privacy", "clip"), "greater than 0"):
        Privacy(clip=-1)


class Strong(fedmux.Method):
    """With an option."""

    strength: float


def test_a_method_of_ones_own_does_too() -> None:
    with refused(("Strong", "strength"), "valid number"):
        Strong(strength="very")


def test_pydantic_s_own_errors_are_there_for_who_wants_them() -> None:
    with pytest.raises(ValidationError) as error:
        fedmux.Experiment.model_validate({**table(), "rounds": 0, "population": {"clients": 0}})
    assert [one["loc"] for one in error.value.errors()] == [("rounds",), ("population", "clients")]


def test_sections_made_before_may_be_passed_on() -> None:
    experiment = fedmux.Experiment(**{**table(), "population": PopulationSettings(clients=12, jobs=6)})
    assert experiment.table() == experiment_of(population={"clients": 12, "jobs": 6}).table()


def kinds(kind: type[Checked] = Checked) -> Iterator[type[Checked]]:
    for one in kind.__subclasses__():
        if one.__module__.startswith("fedmux."):
            yield one
            yield from kinds(one)


def mentions(annotation: Any, what: type) -> bool:
    return annotation is what or any(mentions(part, what) for part in get_args(annotation))


registry()  # so that every method is there
NUMBERS = {
    f"{kind.__name__}.{key}": (kind, key)
    for kind in kinds()
    for key, field in kind.model_fields.items()
    if mentions(field.annotation, float)
}
ENDLESS = ("FedFair.alpha", "FairVr.alpha", "FairForecast.alpha")  # the worst task alone


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_every_number_is_finite(name: str, value: float) -> None:
    kind, key = NUMBERS[name]
    if name in ENDLESS and value == math.inf:
        assert kind.model_validate({key: value})
        return
    with pytest.raises(ValidationError) as error:
        kind.model_validate({key: value})
    assert key in {one["loc"][0] for one in error.value.errors()}


def test_a_table_that_is_validated_keeps_what_a_user_s_code_raised() -> None:
    with pytest.raises(FedmuxError) as error:
        validated(fedmux.Experiment, table(method="test_checked_raises:Method"), "test")
    assert "install it" in str(error.value)
    assert isinstance(error.value.__cause__, FedmuxError)
