"""The losses of all clients, which loss-based allocators ask for: the fleet beside a DataLoader per client.

    python benchmarks/losses.py [--model cnn] [--kernel-size 3] [--repetitions 15]

2,736 images of 28 x 28 over 120 clients of ragged sizes, on one thread of a CPU. The DataLoader reads batches
of 64, for the network as a textbook writes it (convolution, ReLU, pooling) and for our module; the three take
turns, and each prints its median, its smallest time and the median ratio to the first.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fedmux.fleet.simulated import SimulatedFleet
from fedmux.population import Floats
from fedmux.tasks import build, build_loss, build_metric
from fedmux.tasks.cnn import Cnn
from fedmux.tasks.task import LocalSgd, Task

CLIENTS, POINTS, SHAPE, CLASSES = 120, 2736, (1, 28, 28), 10


def make_task(name: str, kernel_size: int) -> Task:
    torch.manual_seed(0)
    module = build(name, input_shape=SHAPE, outputs=CLASSES, options={"kernel_size": kernel_size})
    x, y = torch.randn(POINTS, *SHAPE), torch.randint(CLASSES, (POINTS,))
    rng = np.random.default_rng(0)
    sizes = 1 + rng.multinomial(POINTS - CLIENTS, rng.dirichlet(np.ones(CLIENTS)))
    return Task(
        name=name,
        module=module,
        loss=build_loss("cross-entropy", {}),
        metric=build_metric("accuracy"),
        x=x,
        y=y,
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        validation=(x[:1], y[:1]),
        test=(x[:1], y[:1]),
        local=LocalSgd(batch_size=16, epochs=1),
        learning_rate=lambda round: 0.01,
    )


def textbook(module: Cnn) -> nn.Module:
    """The same weights with the ReLU before the pooling, and images as they are stored."""
    layers = list(module.layers)
    layers[1], layers[2], layers[4], layers[5] = layers[2], layers[1], layers[5], layers[4]
    return nn.Sequential(*layers)


@torch.no_grad()
def with_loaders(task: Task, module: nn.Module) -> Floats:
    module.eval()
    losses = []
    for start, end in zip(task.offsets[:-1], task.offsets[1:]):
        loader: DataLoader[tuple[Tensor, ...]] = DataLoader(
            TensorDataset(task.x[start:end], task.y[start:end]), batch_size=64
        )
        losses.append(sum(task.loss(module(x), y).sum().item() for x, y in loader) / (end - start))
    return np.array(losses)


def with_fleet(fleet: SimulatedFleet) -> Floats:
    model = fleet.tasks[0].layout.read()  # a copy, because the fleet keeps the losses of a model it has seen
    asked = np.ones((CLIENTS, 1), bool)
    losses = fleet.signals([model], {"loss"}, 0, asked, lambda s, clients: torch.empty(0)).losses
    assert losses is not None
    return losses[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("cnn", "cnn-small"), default="cnn")
    parser.add_argument("--kernel-size", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = make_task(arguments.model, arguments.kernel_size)
    fleet = SimulatedFleet([task], seed=0)
    assert isinstance(task.module, Cnn)
    plain = textbook(task.module)
    forms: dict[str, Callable[[], Floats]] = {
        "DataLoader per client, textbook module": lambda: with_loaders(task, plain),
        "DataLoader per client, our module": lambda: with_loaders(task, task.module),
        "fleet": lambda: with_fleet(fleet),
    }
    values = [form() for form in forms.values()]  # warms up, too
    assert all(np.allclose(value, values[0], rtol=1e-4) for value in values)
    seconds = np.empty((arguments.repetitions, len(forms)))
    for row in seconds:
        for column, form in enumerate(forms.values()):
            begin = time.perf_counter()
            form()
            row[column] = time.perf_counter() - begin
    ratios = np.median(seconds[:, :1] / seconds, axis=0)
    for name, taken, ratio in zip(forms, seconds.T, ratios):
        print(f"{name:40s} {np.median(taken):.3f} s (min {taken.min():.3f}), {ratio:.2f}x")


if __name__ == "__main__":
    main()
