"""The tasks of this app: of each its module, a client's own points, and the points that the server scores on.

Replace the modules and the two functions by yours. A client's `train` reads what only this client has; here
it is a part of the data that comes with fedmux, by the number that the SuperNode was started with. Loss and
metric are those of experiment.toml. A function of your own is named there and here: loss="task:function".
"""

import torch
from torch import nn

from fedmux.data import load
from fedmux.flower import FlowerTask


def points(images, labels):
    return torch.from_numpy(images).float().div(255).unsqueeze(1), torch.from_numpy(labels).long()


def train(name, node_config):
    data = load(name)
    part = slice(int(node_config["partition-id"]), 400, int(node_config["num-partitions"]))
    return points(data.train_x[part], data.train_y[part])


def held_out(name):
    data = load(name)
    validation, test = slice(0, 100), slice(100, 300)
    return (
        points(data.test_x[validation], data.test_y[validation]),
        points(data.test_x[test], data.test_y[test]),
    )


def task(name, module):
    def with_fixed_weights():
        torch.manual_seed(0)
        return module()

    return FlowerTask(with_fixed_weights, lambda config: train(name, config), lambda: held_out(name))


TASKS = {
    "clothes": task(
        "fashion-mnist-sample",
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(1152, 10)
        ),
    ),
    "digits": task("digits", lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))),
}
