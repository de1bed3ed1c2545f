"""The client of the Flower engine, in a module of its own because Ray's worker imports it."""

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from work import LEARNING_RATE, Work


@cache
def kept(work: Work) -> tuple[nn.Module, Tensor, Tensor]:
    """What a worker keeps from one client to the next: the module and everyone's data."""
    torch.set_num_threads(1)
    return work.usual_module().train(), *work.data()


def client_app(work: Work) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        module, points, labels = kept(work)
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
        client = int(context.node_config["partition-id"])
        for x, y in zip(points[client].split(work.batch), labels[client].split(work.batch)):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimiser.step()
        metrics = MetricRecord({"num-examples": work.steps * work.batch})
        content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app
