"""fedjax: its federated averaging on the jit backend, without its shuffle.

Run as `.venv-bench/bin/python benchmarks/speed/fedjax_engine.py --model cnn --clients 12`.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import torch
from fedjax.algorithms.fed_avg import federated_averaging
from fedjax_models import NETWORKS, Parameters, convert
from harness import arguments, measure, work_of
from torch import Tensor
from work import LEARNING_RATE, Work


class Fedjax:
    def __init__(self, work: Work) -> None:
        network = NETWORKS[work.model]

        def loss(parameters: Parameters, batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
            chosen = jax.nn.log_softmax(network(parameters, batch["x"]))
            return -jnp.take_along_axis(chosen, batch["y"][:, None], 1).mean()

        jax.tree_map = jax.tree_util.tree_map  # fedjax calls it by the name it had before jax 0.6
        fedjax.set_for_each_client_backend("jit")
        self.algorithm = federated_averaging(
            jax.grad(loss),
            client_optimizer=fedjax.optimizers.sgd(LEARNING_RATE),
            server_optimizer=fedjax.optimizers.sgd(1.0),
            client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
                batch_size=work.batch, num_epochs=1, skip_shuffle=True
            ),
        )
        self.state = self.algorithm.init(convert(work.module()))
        x, y = (part.numpy() for part in work.data())
        x = x.astype(np.int32) if work.model == "char-lstm" else np.moveaxis(x, 2, -1).copy()
        y = y.astype(np.int32)
        self.clients = [
            (str(i).encode(), fedjax.ClientDataset({"x": x[i], "y": y[i]}), jax.random.PRNGKey(i))
            for i in range(work.clients)
        ]

    def round(self) -> None:
        self.state, _ = self.algorithm.apply(self.state, self.clients)
        jax.block_until_ready(self.state.params)

    def weights(self) -> Tensor:
        values = jax.tree_util.tree_leaves(self.state.params)
        return torch.from_numpy(np.concatenate([np.asarray(value).reshape(-1) for value in values]))


if __name__ == "__main__":
    given = arguments(__doc__, devices=("cpu",))
    measure("fedjax", given, Fedjax(work_of(given)), ["fedjax", "jax", "jaxlib"])
