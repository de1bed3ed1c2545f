"""Small convolutions as matrix products: the same values and gradients, alone and over clients."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import conv2d

from fedmux.fleet import convolutions
from fedmux.fleet.convolutions import SmallConvolutions

torch.set_num_threads(1)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


def loss(weight: Tensor, bias: Tensor, x: Tensor, **options: Any) -> Tensor:
    """In which every output counts differently."""
    outputs = conv2d(x, weight, bias, **options)
    factors = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype, device=x.device)
    return (outputs.tanh() * factors.view(outputs.shape)).sum()


def as_products(*tensors: Tensor, **options: Any) -> Tensor:
    with SmallConvolutions():
        return loss(*tensors, **options)


@pytest.fixture
def products(monkeypatch) -> list[int]:
    """How often a convolution was a product."""
    seen: list[int] = []
    own = convolutions._Convolution.apply
    monkeypatch.setattr(convolutions._Convolution, "apply", lambda *given: seen.append(1) or own(*given))
    return seen


@given(
    kernel=pairs,
    stride=pairs,
    padding=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    size=st.tuples(st.integers(3, 8), st.integers(3, 8)),
    channels=pairs,
    seed=st.integers(0, 99),
)
@settings(max_examples=150, deadline=None)
def test_values_and_gradients_are_those_of_the_convolution(
    kernel: Any, stride: Any, padding: Any, size: Any, channels: Any, seed: int
) -> None:
    torch.manual_seed(seed)
    options = {"stride": stride, "padding": padding}
    shapes = (channels[1], channels[0], *kernel), (channels[1],), (4, channels[0], *size)
    stacks = [torch.randn(2, *shape, dtype=torch.float64) for shape in shapes]
    results = []
    for way in (loss, as_products):
        gradients = grad(lambda *t, way=way: way(*t, **options), argnums=(0, 1, 2))
        stacked = vmap(gradients)(*stacks)
        alone = gradients(*(stack[1] for stack in stacks))
        results.append([way(*(stack[0] for stack in stacks), **options), *stacked, *alone])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 1),
        ({"padding": "same"}, 0),
        ({"dilation": 2}, 0),
        ({"dilation": (1, 1), "stride": [2, 1], "padding": [1]}, 1),
        ({"stride": np.int64(2), "padding": torch.tensor(1)}, 1),
    ],
)
def test_other_kinds_are_left_alone(products: list[int], options: dict[str, Any], count: int) -> None:
    torch.manual_seed(0)
    tensors = torch.randn(3, 2, 3, 3), torch.randn(3), torch.randn(4, 2, 9, 9)
    torch.testing.assert_close(as_products(*tensors, **options), loss(*tensors, **options))
    assert len(products) == count


def test_groups_one_image_alone_and_large_ones_are_left_alone(products: list[int]) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(4, 1, 3, 3), torch.randn(2, 4, 9, 9)
    with SmallConvolutions():
        grouped = conv2d(x, weight, groups=4)
        one = conv2d(x[0], weight.expand(4, 4, 3, 3))
        large = conv2d(torch.randn(1, 64, 32, 32), torch.randn(64, 64, 3, 3), padding=1)
    assert large.shape == (1, 64, 32, 32) and not products
    torch.testing.assert_close(grouped, conv2d(x, weight, groups=4))
    torch.testing.assert_close(one, conv2d(x[:1], weight.expand(4, 4, 3, 3))[0])
    with SmallConvolutions():
        assert conv2d(torch.randn(1, 32, 14, 14), torch.randn(64, 32, 3, 3), padding=1).shape[1] == 64
    assert products


def test_a_kernel_that_does_not_fit_fails_as_it_always_did() -> None:
    with SmallConvolutions(), pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        conv2d(torch.randn(1, 1, 2, 2), torch.randn(1, 1, 3, 3))


@pytest.mark.parametrize("device", DEVICES)
def test_what_comes_after_a_convolution_may_be_viewed(device: str) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 2, 9, 9, device=device), torch.randn(3, 2, 3, 3, device=device)
    with SmallConvolutions():
        outputs = conv2d(x, weight)
        last = outputs.contiguous(memory_format=torch.channels_last)
        for viewed in (
            last.view(4, -1),
            last.view((4, -1)),
            last.view(size=(4, -1)),
            last.view_as(torch.empty(4, 147)),
        ):
            assert torch.equal(viewed.flatten(1), outputs.flatten(1))
        assert outputs.view(torch.int32).dtype == torch.int32


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_is_near_float32(device: str) -> None:
    torch.manual_seed(0)
    shapes = (3, 8, 2, 3, 3), (3, 8), (3, 4, 2, 10, 10)
    stacks = [torch.randn(shape, device=device) for shape in shapes]
    gradients = vmap(grad(as_products, argnums=(0, 1, 2)))
    exact = vmap(grad(loss, argnums=(0, 1, 2)))(*stacks)
    with torch.autocast(device, torch.bfloat16, cache_enabled=False):
        half = gradients(*stacks)
    for near, wanted in zip(half, exact):
        assert near.dtype == torch.float32
        assert float((near - wanted).norm() / wanted.norm()) < 0.03
