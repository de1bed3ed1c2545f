"""Whether clients can be stacked: what is an obstacle, and what only looks like one."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import task_of
from fedmux.fleet import stackable
from fedmux.fleet.engine import Engine
from fedmux.fleet.stackable import obstacle
from fedmux.tasks import build
from fedmux.tasks.task import Task

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def said(module: nn.Module, x: Tensor, y: Tensor, device: str = "cpu", **changes: Any) -> str | None:
    where = torch.device(device)
    return obstacle(task_of(module, x, y, [len(x)], **changes).to(where), Engine(where, local="stacked"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", [0, 2])
def test_rounding_that_tips_a_relu_over_is_no_obstacle(seed: int, device: str) -> None:
    """As it does in float32 for these on a CPU. The loss multiplies outputs with targets of the same kind."""
    torch.manual_seed(seed)
    module = build("resnet18", input_shape=(3, 32, 32), outputs=10, options={})
    x, y = torch.randn(8, 3, 32, 32), torch.eye(10)[:8]
    assert said(module, x, y, device, loss=likelihood) is None


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
    [(nn.Identity(), None), (nn.BatchNorm1d(4, track_running_stats=False), "independent")],
)
def test_a_module_for_float32_alone_is_judged_by_float32(norm: nn.Module, reason: Any) -> None:
    torch.manual_seed(0)
    found = said(InFloat32(norm), torch.randn(8, 6), torch.arange(8) % 4)
    assert found == reason if reason is None else reason in str(found)


def differing(float64: Any) -> Any:
    """A trial that finds other gradients in float32 and something else in float64."""

    def difference(task: Task, engine: Engine) -> str | None:
        if task.x.dtype != torch.float64:
            return "they differ"
        if isinstance(float64, Exception):
            raise float64
        return float64

    return difference


@pytest.mark.parametrize(
    ("float64", "reason"),
    [
        (None, None),
        ("they do", "they do"),
        (torch.cuda.OutOfMemoryError("no"), "they differ"),
        (RuntimeError("no"), "they differ"),
    ],
)
def test_float64_has_the_last_word_unless_it_fails(monkeypatch, float64: Any, reason: str | None) -> None:
    monkeypatch.setattr(stackable, "_difference", differing(float64))
    assert said(nn.Linear(6, 4), torch.randn(8, 6), torch.arange(8) % 4) == reason
