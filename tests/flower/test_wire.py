"""What goes over the wire arrives; what an update must be to be taken; whose privacy counts."""

from dataclasses import replace

import pytest
import torch
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from torch import nn

from fedmux.flower.fleet import FlowerFleet
from fedmux.flower.journal import FlowerJournal
from fedmux.flower.roster import Roster
from fedmux.flower.tasks import FlowerTask, How
from fedmux.flower.wire import Hello, Job, asked_tasks, refusal, scalars
from fedmux.model import Model
from fedmux.privacy import Privacy
from fedmux.tasks.task import LocalSgd

MODEL = Model(torch.zeros(5), torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("update", "buffers", "refused"),
    [
        (torch.ones(5), MODEL.buffers, None),
        (torch.ones(4), MODEL.buffers, ("shape", "wrong shape (4,), not (5,)")),
        (torch.ones(5, 1), MODEL.buffers, ("shape", "wrong shape (5, 1), not (5,)")),
        (torch.ones(5), torch.zeros(3, dtype=torch.float64), ("shape", "wrong shape (3,), not (2,)")),
        (
            torch.ones(5, dtype=torch.float64),
            MODEL.buffers,
            ("shape", "wrong type torch.float64, torch.float64"),
        ),
        (torch.tensor([1, 2, float("nan"), 0, 0]), MODEL.buffers, ("not-finite", "not finite")),
        (torch.tensor([1, 2, float("inf"), 0, 0]), MODEL.buffers, ("not-finite", "not finite")),
        (torch.ones(5), torch.full((2,), float("nan"), dtype=torch.float64), ("not-finite", "not finite")),
        (torch.full((5,), 1e3), MODEL.buffers, ("norm", "norm 2.24e+03 above 100")),
    ],
)
def test_updates_are_taken_or_refused_with_a_reason(update, buffers, refused) -> None:
    assert refusal(update, buffers, MODEL, 100.0) == refused


POINTS = torch.randn(6, 4), torch.zeros(6, dtype=torch.int64)


def task(own: Privacy | None = None) -> FlowerTask:
    return FlowerTask(
        module=lambda: nn.Linear(4, 2),
        train=lambda config: POINTS,
        held_out=lambda: (POINTS, POINTS),
        privacy=own,
    )


@pytest.mark.parametrize("own", [None, Privacy(clip=0.5, noise=2.0)])
def test_a_client_may_have_a_privacy_that_the_server_lacks_which_is_told_once(own) -> None:
    how = How(LocalSgd(2, 1), lambda round: 0.1, None)
    assert task(own).task("a", how, POINTS, at=3).privacy == own
    journal = FlowerJournal(4, 1)
    roster = Roster(["a"], 4, journal)
    roster.numbers["ward"] = 3
    fleet = FlowerFleet(None, [task().server_task("a", how)], 0, roster, journal)  # type: ignore[arg-type]
    for _ in range(2):
        fleet._compare_privacy(3, 0, own.model_dump() if own else {})
    told = [
        line
        for line in fleet.journal.notices
        if line.startswith('client ward, task "a": follows its own privacy rule')
    ]
    assert len(told) == len(fleet.journal.notices) == (own is not None)


def test_a_job_and_its_privacy_arrive_as_they_were_sent() -> None:
    content = RecordDict()
    job = Job(
        MODEL,
        1,
        7,
        3,
        2**62 + 1,
        0.25,
        LocalSgd(8, 2, clip=1.5),
        frozenset({"loss"}),
        Privacy(clip=2, noise=1),
    )
    job.put(content, "a")
    replace(job, privacy=None, local=LocalSgd(4, 1)).put(content, "b")
    assert set(asked_tasks(content)) == {"a", "b"}
    back = Job.read(content, "a")
    assert replace(back, model=MODEL) == job and torch.equal(back.model.parameters, MODEL.parameters)
    assert Job.read(content, "b").privacy is None


def test_a_hello_arrives_or_is_refused_with_a_reason() -> None:
    content = RecordDict()
    said = Hello("ward-a", 2, {"digits": 12, "clothes": 0})
    said.put(content)
    assert Hello.read(content) == said


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, "id"),
        ({"client": 7}, "id"),
        ({"client": "x" * 1000}, "id"),
        ({"client": "a", "processors": -1}, "processors"),
        ({"client": "a", "processors": 10**9}, "processors"),
        ({"client": "a", "processors": 1, "tasks": ["t"], "sizes": [1, 2]}, "do not match"),
        ({"client": "a", "processors": 1, "tasks": "t", "sizes": [1]}, "do not match"),
        ({"client": "a", "processors": 1, "tasks": ["t"], "sizes": [-5]}, "points"),
        ({"client": "a", "processors": 1, "tasks": ["t"], "sizes": [2.5]}, "points"),
    ],
)
def test_a_hello_that_cannot_be_is_refused(record, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        Hello.read(RecordDict({"hello": ConfigRecord(record)} if record else {}))


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"loss": 0.5, "norm": 2}, {"loss": 0.5, "norm": 2.0}),
        ({"loss": 0.5}, None),
        ({"loss": 0.5, "norm": [1.0, 2.0]}, None),
        ({}, None),
    ],
)
def test_scalars_are_all_there_or_none(record, found) -> None:
    content = RecordDict({"signal.a": MetricRecord(record)} if record else {})
    assert scalars(content, "signal.a", ["loss", "norm"]) == found
