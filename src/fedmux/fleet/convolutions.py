"""Small convolutions of many clients at once, as matrix products.

`vmap` turns convolutions whose weights differ between clients into a grouped one, for which cuDNN's kernels
are slow. With each output's window copied into a row it is a batched matrix product, which is faster as long
as the copies are small.
"""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, SupportsIndex

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode

MOST = 2**17  # values copied per point; beyond that a grouped convolution is as fast

Pair = tuple[int, int]


class SmallConvolutions(TorchFunctionMode):
    """Inside, small two-dimensional convolutions are computed as products; everything else is unchanged.

    Their results may be channels-last in memory, where `view` would fail, so it becomes `reshape`.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.conv2d and (result := _small(*args, **kwargs)) is not None:
            return result
        if func is torch.Tensor.view_as:
            return torch.Tensor.reshape_as(*args, **kwargs)
        if func is torch.Tensor.view and not isinstance((*args, *kwargs.values())[1], torch.dtype):
            return torch.Tensor.reshape(*args, *kwargs.values())
        return func(*args, **kwargs)


def _small(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor | None:
    """The convolution as a product; None if it is too large or of another kind."""
    if input.dim() != 4 or isinstance(padding, str) or groups != 1 or _pair(dilation) != (1, 1):
        return None
    step, edge = _pair(stride), _pair(padding)
    outputs = [
        (size + 2 * e - k) // s + 1 for size, k, s, e in zip(input.shape[2:], weight.shape[2:], step, edge)
    ]
    if min(outputs) < 1 or outputs[0] * outputs[1] * weight[0].numel() > MOST:
        return None
    if torch.is_autocast_enabled(input.device.type):
        smaller = torch.get_autocast_dtype(input.device.type)
        input, weight = input.to(smaller), weight.to(smaller)
    result: Tensor = _Convolution.apply(input, weight, step, edge)[0]  # type: ignore[no-untyped-call]
    return result if bias is None else result + bias.to(result.dtype)[:, None, None]


class _Convolution(torch.autograd.Function):
    """Points (n, C, H, W) and weights (O, C, h, w) to the result, and the rows, for the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> tuple[Tensor, Tensor]:
        seen = _windows(input, (weight.shape[2], weight.shape[3]), stride, padding)
        rows = seen.flatten(3).flatten(0, 2)
        result = rows @ weight.permute(2, 3, 1, 0).flatten(0, 2)
        return _first(result.unflatten(0, seen.shape[:3])), rows

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        input, weight, ctx.stride, ctx.padding = inputs
        ctx.size = input.shape
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(weight, output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
        weight, rows = ctx.saved_tensors
        high, wide = weight.shape[2:]
        flat = gradient.permute(0, 2, 3, 1).flatten(0, 2)
        of_weight = (rows.mT @ flat).unflatten(0, (high, wide, -1)).permute(3, 2, 0, 1)
        of_input = None
        if ctx.needs_input_grad[0]:
            of_input = _of_input(gradient, flat, weight, ctx.size, ctx.stride, ctx.padding)
        return of_input, of_weight, None, None


def _windows(input: Tensor, size: Pair, stride: Pair, padding: Pair) -> Tensor:
    """The window of each output: (n, H', W', h, w, C), a view of the padded input, channels last."""
    last = input.permute(0, 2, 3, 1)
    last = pad(last, (0, 0, padding[1], padding[1], padding[0], padding[0]))
    return last.unfold(1, size[0], stride[0]).unfold(2, size[1], stride[1]).permute(0, 1, 2, 4, 5, 3)


def _of_input(
    gradient: Tensor, flat: Tensor, weight: Tensor, size: Sequence[int], stride: Pair, padding: Pair
) -> Tensor:
    """The gradient of a convolution's input."""
    _, channels, high, wide = weight.shape
    if stride == (1, 1):  # again a convolution, with flipped weights
        around = high - 1 - padding[0], wide - 1 - padding[1]
        seen = _windows(gradient, (high, wide), stride, around)
        turned = weight.flip(2, 3).permute(2, 3, 0, 1).flatten(0, 2)
        return _first((seen.flatten(3).flatten(0, 2) @ turned).unflatten(0, seen.shape[:3]))
    # Each position in the windows adds to the inputs it covered.
    down, along = gradient.shape[2:]
    parts = (flat @ weight.permute(0, 2, 3, 1).flatten(1)).unflatten(0, (-1, down, along))
    parts = parts.unflatten(-1, (high, wide, channels))
    total = parts.new_zeros(size[0], size[2] + 2 * padding[0], size[3] + 2 * padding[1], channels)
    for y in range(high):
        for x in range(wide):
            rows = slice(y, y + stride[0] * (down - 1) + 1, stride[0])
            total[:, rows, x : x + stride[1] * (along - 1) + 1 : stride[1]] += parts[:, :, :, y, x]
    return _first(total[:, padding[0] : padding[0] + size[2], padding[1] : padding[1] + size[3]])


def _first(last: Tensor) -> Tensor:
    """Channels first; on a CPU also in memory, or `vmap` over GroupNorm fails."""
    first = last.permute(0, 3, 1, 2)
    return first.contiguous() if first.is_cpu else first


def _pair(value: SupportsIndex | Sequence[SupportsIndex]) -> Pair:
    both = (value, value) if isinstance(value, SupportsIndex) else (value[0], value[-1])
    return index(both[0]), index(both[1])
