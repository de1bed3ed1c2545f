"""Loss and metric are the experiment's, at every client, which runs no code that its app does not name."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor, nn

from conftest import experiment_of, table, task_of
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.fleet.local import TightLoop
from fedmux.flower import client
from fedmux.flower.objective import Objective
from fedmux.flower.server import Terms, serve
from fedmux.flower.tasks import FlowerTask, How, from_experiment
from fedmux.flower.wire import Hello, Job, read_failure, tensor
from fedmux.privacy import Privacy
from fedmux.tasks import build_loss, build_metric
from fedmux.tasks.task import LocalSgd

X, Y = torch.randn(12, 4), torch.randn(12, 1)


def near(outputs: Tensor, targets: Tensor) -> Tensor:
    """A metric of the app's own."""
    return -(outputs[:, 0] - targets.reshape(len(targets), -1)[:, 0]).abs()


NEAR = f"{__name__}:near"
SQUARED = Objective("squared-error")
PRIVACY = Privacy(clip=1.0)


def task(**changes: Any) -> FlowerTask:
    def module() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(4, 1)

    return replace(FlowerTask(module, lambda config: (X, Y), lambda: ((X, Y), (X, Y))), **changes)


def how(objective: Objective, privacy: Privacy | None = None) -> How:
    return How(
        LocalSgd(4, 2, momentum=0.5, weight_decay=0.1, clip=1.0), lambda round: 0.1, privacy, objective
    )


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        (SQUARED, {}),
        (SQUARED, {"loss": "squared-error"}),
        (SQUARED, {"metric": "mean-squared-error", "loss_options": {}}),
        (Objective("squared-error", {}, NEAR), {"metric": NEAR}),
    ],
)
def test_an_app_may_leave_it_to_the_experiment_or_say_the_same(objective: Objective, changes: Any) -> None:
    made = task(**changes).server_task("a", how(objective))
    outputs = torch.zeros(12, 1)
    assert torch.equal(made.loss(outputs, Y), Y[:, 0].square())
    metric = near if objective.metric else build_metric("mean-squared-error")
    assert torch.equal(made.metric(outputs, Y).flatten(), metric(outputs, Y).flatten())


@pytest.mark.parametrize(
    ("objective", "changes", "values", "remedy"),
    [
        (
            SQUARED,
            {"loss": "cross-entropy"},
            ('loss = "cross-entropy"', 'loss = "squared-error"'),
            "make them equal",
        ),
        (
            SQUARED,
            {"metric": "accuracy"},
            ('metric = "accuracy"', '"mean-squared-error"'),
            "leave metric out",
        ),
        (
            Objective("cross-entropy", {"label_smoothing": 0.1}),
            {"loss_options": {"label_smoothing": 0.2}},
            ("{label_smoothing = 0.2}", "{label_smoothing = 0.1}"),
            "leave loss_options out",
        ),
        (Objective(NEAR), {}, (NEAR,), f'add loss="{NEAR}"'),
        (Objective("squared-error", {}, NEAR), {}, (NEAR,), f'add metric="{NEAR}"'),
        (Objective("os:system"), {"loss": NEAR}, ('"os:system"', NEAR), "make them equal"),
        (
            Objective("squared-error", {}, {"name": "r2", "unit": "m"}),
            {"metric": {"name": "r2", "unit": "km"}},
            ('unit = "km"', 'unit = "m"'),
            "make them equal",
        ),
    ],
)
@pytest.mark.parametrize("side", ["server", "client"])
def test_a_disagreement_names_task_values_and_remedy(
    side: str, objective: Objective, changes: Any, values: tuple[str, ...], remedy: str
) -> None:
    own = task(**changes)
    with pytest.raises(FedmuxError) as raised:
        own.server_task("vitals", how(objective)) if side == "server" else own.task(
            "vitals", how(objective), (X, Y), 0
        )
    message = str(raised.value)
    assert message.startswith('task "vitals": ') and remedy in message and "\n" not in message
    for value in values:
        assert value in message


def test_privacies_that_differ_are_refused_and_one_alone_counts() -> None:
    for own, asked in ((PRIVACY, None), (None, PRIVACY), (PRIVACY, PRIVACY)):
        assert task(privacy=own).server_task("a", how(SQUARED, asked)).privacy == PRIVACY
    with pytest.raises(
        FedmuxError, match=r'task "a": .*privacy = \{clip = 1.0.*privacy = \{clip = 2.0.*equal'
    ):
        task(privacy=PRIVACY).server_task("a", how(SQUARED, Privacy(clip=2.0)))


def test_a_server_refuses_before_anything_is_written(tmp_path: Path) -> None:
    experiment = experiment_of(population={"clients": 2, "jobs": 2})
    own = {name: replace(one, loss="squared-error") for name, one in from_experiment(experiment).items()}
    with pytest.raises(FedmuxError, match=r'task "a": .*"squared-error".*"cross-entropy"'):
        serve(None, experiment, own, tmp_path / "run", Terms())  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_the_app_that_comes_with_fedmux_names_what_its_experiment_names() -> None:
    changed = table(population={"clients": 2, "jobs": 2})
    changed["task"] = [{**changed["task"][0], "loss_options": {"label_smoothing": 0.1}, "metric": NEAR}]
    experiment = Experiment(**changed)
    (own,) = from_experiment(experiment).values()
    objective = Objective.of(experiment.tasks[0])
    assert (own.loss, own.loss_options, own.metric) == ("cross-entropy", {"label_smoothing": 0.1}, NEAR)
    assert objective == Objective("cross-entropy", {"label_smoothing": 0.1}, NEAR)


# A client, in this process


def asked(objectives: dict[str, Objective]) -> RecordDict:
    content = RecordDict()
    for number, (name, objective) in enumerate(objectives.items()):
        model = task().server_task(name, how(SQUARED)).layout.read()
        local = how(objective).local
        Job(model, number, 0, 1, 7, 0.1, local, frozenset(), None, objective).put(content, name)
    return content


CONTEXT: Any = SimpleNamespace(node_config={"partition-id": 0}, run_config={})
answer = client.by_task(client._train)


def test_a_client_trains_for_what_the_experiment_says_and_with_its_settings() -> None:
    reply = answer({"a": task()}, asked({"a": SQUARED}), CONTEXT)
    module = task().module()
    simulated = task_of(
        module,
        X,
        Y,
        [12],
        loss=build_loss("squared-error", {}),
        local=how(SQUARED).local,
        learning_rate=lambda round: 0.1,
    )
    wanted, _ = TightLoop(simulated, 0, 7).update(simulated.layout.read(), 0, 1)
    assert torch.equal(tensor(reply.array_records["update.a"], "update"), wanted)


def test_a_task_that_fails_at_a_client_does_not_take_the_others_with_it() -> None:
    def stranger(config: Any) -> Any:
        raise LookupError("no such drawer\nnor a cupboard")

    tasks = {"a": task(loss="cross-entropy"), "b": task(), "c": task(train=stranger)}
    reply = answer(tasks, asked(dict.fromkeys("abcd", SQUARED)), CONTEXT)
    assert list(reply.array_records) == ["update.b"]
    assert read_failure(reply, "b") is None
    for name, reason in (
        ("a", 'loss = "cross-entropy", the experiment loss = "squared-error"'),
        ("c", "LookupError: no such drawer"),
        ("d", "this client does not have the task"),
    ):
        told = read_failure(reply, name)
        assert told is not None and reason in told and not told.startswith("task") and "\n" not in told


def test_a_client_imports_nothing_because_a_server_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stranger.py").write_text("raise SystemExit('it was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for objective in (Objective("stranger:loss"), Objective("squared-error", {}, "stranger:metric")):
        reply = answer({"a": task()}, asked({"a": objective}), CONTEXT)
        assert "names it: add" in (read_failure(reply, "a") or "")


def test_another_version_at_the_other_end_is_told() -> None:
    content = asked({"a": SQUARED})
    del content["objective.a"]
    assert "install the version" in (read_failure(answer({"a": task()}, content, CONTEXT), "a") or "")
    old = RecordDict({"hello": ConfigRecord({"client": "x", "processors": 1, "tasks": ["a"], "sizes": [3]})})
    with pytest.raises(ValueError, match="another version of fedmux; install"):
        Hello.read(old)


@pytest.mark.parametrize("reason", [7, "", "two\nlines", "x" * 10_000])
def test_whatever_a_client_gives_as_a_reason_is_one_short_line(reason: Any) -> None:
    told = read_failure(RecordDict({"failure.a": ConfigRecord({"reason": reason})}), "a")
    assert told and "\n" not in told and len(told) < 400


# What does not go together

LABELS = np.arange(12) % 3


@pytest.mark.parametrize(
    ("given", "module", "place", "remedy"),
    [
        ((X, torch.arange(12) % 5), nn.Linear(4, 3), r"label 3, .*3 outputs", "an output for each class"),
        ((X, torch.arange(12) % 3 + 1), nn.Linear(4, 3), "label 3", "number the labels from 0"),
        ((X, torch.arange(12) % 3 - 1), nn.Linear(4, 3), "label -1", "number the labels from 0"),
        ((X, torch.rand(12)), nn.Linear(4, 3), "labels .* float32", r"y\.long\(\)"),
        ((X, torch.eye(12)[:, :3]), nn.Linear(4, 3), r"\(12, 3\)", r"y\.argmax\(1\)"),
        ((X, torch.zeros(12, 1)), nn.Linear(4, 3), r"\(12, 1\)", r"y\.flatten\(\)"),
        ((X, torch.zeros(11).long()), nn.Linear(4, 3), r"\(12, 4\) .*\(11,\)", "as many labels"),
        ((torch.rand(12, 5), torch.zeros(12).long()), nn.Linear(4, 3), r"shape \(5,\)", "change the one"),
        ((X.double(), torch.zeros(12).long()), nn.Linear(4, 3), "float64", "change the one"),
        ((X, torch.zeros(12).long()), nn.Linear(4, 2), "15 parameters.* 10 and", "same module"),
        ((X, torch.zeros(12).long()), nn.LSTM(4, 3), "tuple", "a tensor"),
        ((X.numpy(), LABELS), nn.Linear(4, 3), "ndarray", "from_numpy"),
        (X, nn.Linear(4, 3), "Tensor", "inputs and labels"),
    ],
)
def test_what_does_not_fit_is_told_with_shapes_and_remedy(
    given: Any, module: nn.Module, place: str, remedy: str
) -> None:
    content = RecordDict()
    Job(task_of(nn.Linear(4, 3), X, Y, [12]).layout.read(), 0, 0, 1, 7, 0.1, LocalSgd(4, 1), frozenset()).put(
        content, "a"
    )
    own = task(module=lambda: module, train=lambda config: given)
    told = read_failure(answer({"a": own}, content, CONTEXT), "a")
    assert told is not None
    with pytest.raises(FedmuxError, match=rf"{place}.*{remedy}"):
        raise FedmuxError(told)
    held_out = replace(own, held_out=lambda: (given, given))
    if "same module" not in remedy:
        with pytest.raises(FedmuxError, match=rf'^task "a": .*{remedy}'):
            held_out.server_task("a", How(LocalSgd(4, 1), lambda round: 0.1, None))
