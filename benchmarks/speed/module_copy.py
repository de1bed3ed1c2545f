"""What everyone writes: for each client a copy of the module, a DataLoader and torch.optim.SGD.

Run as `python benchmarks/speed/module_copy.py --model cnn --clients 12`.
"""

import copy

import torch
from harness import arguments, measure, work_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from work import LEARNING_RATE, Work, flat


class ModuleCopy:
    def __init__(self, work: Work, device: str) -> None:
        self.work, self.device = work, device
        self.module = work.usual_module().to(device)
        self.clients = [TensorDataset(x, y) for x, y in zip(*work.data())]

    def round(self) -> None:
        total = {name: torch.zeros_like(value) for name, value in self.module.state_dict().items()}
        for client in self.clients:
            local = copy.deepcopy(self.module)
            local.train()
            optimiser = torch.optim.SGD(local.parameters(), lr=LEARNING_RATE)
            for x, y in DataLoader(client, batch_size=self.work.batch):
                x, y = x.to(self.device), y.to(self.device)
                optimiser.zero_grad()
                nn.functional.cross_entropy(local(x), y).backward()
                optimiser.step()
            for name, value in local.state_dict().items():
                total[name] += value
        self.module.load_state_dict({name: value / len(self.clients) for name, value in total.items()})

    def weights(self) -> Tensor:
        return flat(list(self.module.parameters()))


if __name__ == "__main__":
    given = arguments(__doc__)
    measure("module-copy", given, ModuleCopy(work_of(given), given.device))
