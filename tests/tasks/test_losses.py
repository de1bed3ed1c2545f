"""Losses: one value per point, equal to torch's; users' own; refusals."""

import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from fedmux.tasks import build_loss
from refusals import Words, refused

LOGITS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 1, 2])

OWN = """
import torch
def margin(outputs, targets, *, gap=1.0):
    return torch.relu(gap - outputs.gather(1, targets[:, None])[:, 0])
def averaged(outputs, targets):
    return outputs.mean()
def lonely(outputs):
    return outputs
class Loss:
    pass
number = 3
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_losses.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_cross_entropy_per_point_equals_torchs() -> None:
    values = build_loss("cross-entropy", {})(LOGITS, LABELS)
    assert values.shape == (6,)
    torch.testing.assert_close(values, functional.cross_entropy(LOGITS, LABELS, reduction="none"))


def test_label_smoothing_is_torchs() -> None:
    values = build_loss("cross-entropy", {"label_smoothing": 0.1})(LOGITS, LABELS)
    torch.testing.assert_close(values.mean(), functional.cross_entropy(LOGITS, LABELS, label_smoothing=0.1))


def test_losses_can_be_vmapped() -> None:
    for options in ({}, {"label_smoothing": 0.1}):
        loss = build_loss("cross-entropy", dict(options))
        stacked = torch.func.vmap(loss)(LOGITS.reshape(2, 3, 4), LABELS.reshape(2, 3))
        torch.testing.assert_close(stacked.flatten(), loss(LOGITS, LABELS))


def test_squared_error_is_the_mean_over_output_dimensions() -> None:
    targets = torch.ones(6, 4)
    values = build_loss("squared-error", {})(LOGITS, targets)
    torch.testing.assert_close(values, functional.mse_loss(LOGITS, targets, reduction="none").mean(1))


def test_squared_error_pairs_a_column_of_outputs_with_a_vector_of_targets() -> None:
    values = build_loss("squared-error", {})(torch.tensor([[1.0], [2.0]]), torch.tensor([3, 5]))
    assert values.tolist() == [4.0, 9.0]
    assert build_loss("squared-error", {})(torch.tensor([1.0, 2.0]), torch.tensor([3, 5])).tolist() == [
        4.0,
        9.0,
    ]


def test_squared_error_refuses_targets_of_another_size() -> None:
    with refused(("squared-error", "(6, 4)", "(6,)"), "as many outputs as a target has values"):
        build_loss("squared-error", {})(LOGITS, torch.ones(6))


def test_a_users_function_is_a_loss() -> None:
    values = build_loss("own_losses:margin", {"gap": 2.0})(LOGITS, LABELS)
    torch.testing.assert_close(values, torch.relu(2 - LOGITS[torch.arange(6), LABELS]))


def test_a_users_function_that_averages_is_stopped() -> None:
    with refused(('loss "own_losses:averaged"', "()"), ("one value per point", "(6,)", 'reduction="none"')):
        build_loss("own_losses:averaged", {})(LOGITS, LABELS)


@pytest.mark.parametrize(
    ("name", "options", "where", "remedy"),
    [
        ("cros-entropy", {}, (), ('"cross-entropy"', "cross-entropy, squared-error", "module:function")),
        ("cross-entropy", {"smoothing": 0.1}, ("0.1",), "unexpected keyword argument 'smoothing'"),
        ("cross-entropy", {"label_smoothing": 1}, ("label_smoothing", "got 1"), "[0, 1)"),
        ("cross-entropy", {"label_smoothing": "0.1"}, ("label_smoothing", "'0.1'"), "[0, 1)"),
        ("own_losses:lonely", {}, (), ("(outputs, targets)", "too many positional arguments")),
        ("own_losses:Loss", {}, (), ("function", "(outputs, targets)")),
        ("own_losses:number", {}, (), ("function", "(outputs, targets)")),
        ("own_absent:f", {}, (), ("own_absent;", "install it", "run where own_absent is")),
    ],
)
def test_what_is_no_loss_is_refused_in_one_line(
    name: str, options: dict[str, object], where: tuple[str, ...], remedy: Words
) -> None:
    with refused((f'loss "{name}"', *where), remedy):
        build_loss(name, options)
