"""What an update must be to be taken."""

import pytest
import torch

from fedmux.flat import Model
from fedmux.flower.wire import refusal

MODEL = Model(torch.zeros(5), torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("update", "buffers", "reason"),
    [
        (torch.ones(5), MODEL.buffers, None),
        (torch.ones(4), MODEL.buffers, "wrong shape (4,), not (5,)"),
        (torch.ones(5, 1), MODEL.buffers, "wrong shape (5, 1), not (5,)"),
        (torch.ones(5), torch.zeros(3, dtype=torch.float64), "wrong shape (3,), not (2,)"),
        (torch.ones(5, dtype=torch.float64), MODEL.buffers, "wrong type torch.float64"),
        (torch.tensor([1, 2, float("nan"), 0, 0]), MODEL.buffers, "not finite"),
        (torch.tensor([1, 2, float("inf"), 0, 0]), MODEL.buffers, "not finite"),
        (torch.ones(5), torch.full((2,), float("nan"), dtype=torch.float64), "not finite"),
        (torch.full((5,), 1e3), MODEL.buffers, "norm 2.24e+03 above 100"),
    ],
)
def test_updates_are_taken_or_refused_with_a_reason(update, buffers, reason) -> None:
    assert refusal(update, buffers, MODEL, 100.0) == reason
