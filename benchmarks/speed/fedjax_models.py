"""The benchmark's networks in JAX, on weights converted from the torch modules.

Images have their channels last, as XLA likes them; a norm of weights does not depend on their order.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from torch import nn

Parameters = dict[str, jax.Array]
Network = Callable[[Parameters, jax.Array], jax.Array]

GROUPS = 32  # of every GroupNorm of a resnet18 of the usual width


def convolve(images: jax.Array, weight: jax.Array, stride: int = 1) -> jax.Array:
    """A convolution with torch's symmetric padding of half the kernel."""
    padding = weight.shape[0] // 2
    return lax.conv_general_dilated(
        images,
        weight,
        (stride, stride),
        [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def pool(images: jax.Array) -> jax.Array:
    return lax.reduce_window(images, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn(p: Parameters, images: jax.Array) -> jax.Array:
    hidden = pool(jax.nn.relu(convolve(images, p["layers.0.weight"]) + p["layers.0.bias"]))
    hidden = pool(jax.nn.relu(convolve(hidden, p["layers.3.weight"]) + p["layers.3.bias"]))
    hidden = hidden.reshape(len(hidden), -1)
    hidden = jax.nn.relu(hidden @ p["layers.7.weight"] + p["layers.7.bias"])
    return hidden @ p["layers.9.weight"] + p["layers.9.bias"]


def norm(p: Parameters, name: str, images: jax.Array) -> jax.Array:
    groups = images.reshape(len(images), -1, GROUPS, images.shape[-1] // GROUPS)
    mean = groups.mean((1, 3), keepdims=True)
    variance = jnp.square(groups - mean).mean((1, 3), keepdims=True)
    groups = (groups - mean) * lax.rsqrt(variance + 1e-5)
    return groups.reshape(images.shape) * p[f"{name}.weight"] + p[f"{name}.bias"]


def resnet18(p: Parameters, images: jax.Array) -> jax.Array:
    hidden = convolve(images, p["stem.weight"])
    for block in range(8):
        name, stride = f"blocks.{block}", 2 if block in (2, 4, 6) else 1
        active = jax.nn.relu(norm(p, f"{name}.norm1", hidden))
        shortcut = f"{name}.shortcut.weight"
        around = convolve(active, p[shortcut], stride) if shortcut in p else hidden
        inner = convolve(active, p[f"{name}.conv1.weight"], stride)
        inner = convolve(jax.nn.relu(norm(p, f"{name}.norm2", inner)), p[f"{name}.conv2.weight"])
        hidden = inner + around
    hidden = jax.nn.relu(norm(p, "norm", hidden)).mean((1, 2))
    return hidden @ p["head.weight"] + p["head.bias"]


def char_lstm(p: Parameters, tokens: jax.Array) -> jax.Array:
    hidden = p["embedding.weight"][tokens].swapaxes(0, 1)  # length x batch x embedding
    for layer in range(2):
        recurrent = p[f"lstm.{layer}.hidden_weight"].T
        projected = hidden @ p[f"lstm.{layer}.input_weight"].T + p[f"lstm.{layer}.bias"]

        def step(
            carry: tuple[jax.Array, jax.Array], gates: jax.Array, recurrent: jax.Array = recurrent
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            state, cell = carry
            enter, forget, candidate, leave = jnp.split(gates + state @ recurrent, 4, -1)
            cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
            state = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            return (state, cell), state

        zero = jnp.zeros((projected.shape[1], recurrent.shape[0]))
        _, hidden = lax.scan(step, (zero, zero), projected)
    return hidden[-1] @ p["head.weight"] + p["head.bias"]


NETWORKS: dict[str, Network] = {"cnn": cnn, "resnet18": resnet18, "char-lstm": char_lstm}


def convert(module: nn.Module) -> Parameters:
    """The module's weights: kernels as height x width x in x out, those of linear layers as in x out."""
    parameters: dict[str, np.ndarray] = {}
    for name, value in module.named_parameters():
        array = value.detach().numpy()
        if array.ndim == 4:
            array = array.transpose(2, 3, 1, 0)
        elif name == "layers.7.weight":  # after flattening, with the channels now last: 64 x 7 x 7
            array = array.reshape(-1, 64, 7, 7).transpose(2, 3, 1, 0).reshape(-1, len(array))
        elif name in ("layers.9.weight", "head.weight"):
            array = array.T
        parameters[name] = np.ascontiguousarray(array)
    return jax.tree_util.tree_map(jnp.asarray, parameters)
