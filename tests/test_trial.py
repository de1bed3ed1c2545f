"""Whether clients can be stacked: what is an obstacle, and what only looks like one."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmux.flat import Layout
from fedmux.fleet import trial
from fedmux.fleet.engine import Engine
from fedmux.fleet.trial import obstacle
from fedmux.tasks import build, build_loss, build_metric
from fedmux.tasks.task import LocalSgd, Task

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def task_of(module: nn.Module, x: Tensor, y: Tensor, device: str = "cpu") -> Task:
    points = x, y
    return Task(
        name="test",
        module=module,
        layout=Layout(module),
        loss=build_loss("cross-entropy", {}),
        metric=build_metric("accuracy"),
        x=x,
        y=y,
        offsets=np.array([0, len(x)]),
        validation=points,
        test=points,
        local=LocalSgd(batch_size=4, epochs=1),
        learning_rate=lambda round: 0.01,
    ).to(torch.device(device))


def said(task: Task, device: str = "cpu") -> str | None:
    return obstacle(task, Engine(torch.device(device), local="stacked"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", [0, 2])
def test_rounding_that_tips_a_relu_over_is_no_obstacle(seed: int, device: str) -> None:
    """As it does in float32 for these on a CPU. The loss multiplies outputs with targets of the same kind."""
    torch.manual_seed(seed)
    module = build("resnet18", input_shape=(3, 32, 32), outputs=10, options={})
    task = task_of(module, torch.randn(8, 3, 32, 32), torch.eye(10)[:8], device=device)
    assert said(dataclasses.replace(task, loss=likelihood), device) is None


def likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    return -torch.bmm(outputs.log_softmax(1)[:, None], targets[:, :, None]).flatten()


class InFloat32(nn.Module):
    """Knows no other kind of numbers."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 4), norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.first(x.float()))


@pytest.mark.parametrize(
    ("norm", "reason"),
    [(nn.Identity(), None), (nn.BatchNorm1d(4, track_running_stats=False), "independently")],
)
def test_a_module_for_float32_alone_is_judged_by_float32(norm: nn.Module, reason: Any) -> None:
    torch.manual_seed(0)
    found = said(task_of(InFloat32(norm), torch.randn(8, 6), torch.arange(8) % 4))
    assert found == reason if reason is None else reason in str(found)


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError, RuntimeError])
def test_float32_is_believed_where_float64_fails(monkeypatch, error: type[Exception]) -> None:
    def difference(task: Task, engine: Engine, dtype: torch.dtype) -> str:
        if dtype == torch.float64:
            raise error("no")
        return "they differ"

    monkeypatch.setattr(trial, "_difference", difference)
    assert said(task_of(nn.Linear(6, 4), torch.randn(8, 6), torch.arange(8) % 4)) == "they differ"
