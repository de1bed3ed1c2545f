"""pfl (pfl-research): its simulated backend with FederatedAveraging on the PyTorch bridge.

    .venv-bench/bin/python benchmarks/speed/pfl_engine.py --model cnn --clients 12

A user's dataset is built once and keeps its batches. pfl evaluates the round of number 0, whatever the
frequency; that one is not timed, and its metric costs nothing.
"""

import os

import torch
from harness import arguments, measure, work_of
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from work import LEARNING_RATE, Work, flat

NEVER = 10**9


class WithLoss(nn.Module):
    """The module with the methods that pfl asks for."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.inner(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"points": Weighted(len(x), len(x))}


class Pfl:
    def __init__(self, work: Work, device: str) -> None:
        self.clients = work.clients
        module = WithLoss(work.usual_module().to(device)).train()
        self.model = PyTorchModel(
            module, torch.optim.SGD, central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0)
        )
        x, y = (part.to(device) for part in work.data())
        datasets = [PyTorchTensorDataset((x[i], y[i]), user_id=str(i)) for i in range(work.clients)]
        sampler = get_user_sampler("minimize_reuse", list(range(work.clients)))
        users = FederatedDataset(datasets.__getitem__, sampler)
        self.backend = SimulatedBackend(training_data=users, val_data=users)
        self.algorithm = FederatedAveraging()
        self.train = NNTrainHyperParams(
            local_batch_size=work.batch, local_num_epochs=1, local_learning_rate=LEARNING_RATE
        )
        self.rounds = 0

    def round(self) -> None:
        """A call goes on from the round where the last one stopped."""
        self.rounds += 1
        parameters = NNAlgorithmParams(
            central_num_iterations=self.rounds,
            evaluation_frequency=NEVER,
            train_cohort_size=self.clients,
            val_cohort_size=0,
        )
        self.algorithm.run(parameters, self.backend, self.model, self.train, send_metrics_to_platform=False)

    def weights(self) -> Tensor:
        return flat(list(self.model.pytorch_model.parameters()))


if __name__ == "__main__":
    given = arguments(__doc__)
    os.environ["PFL_PYTORCH_DEVICE"] = given.device
    measure("pfl", given, Pfl(work_of(given), given.device), ["pfl"])
