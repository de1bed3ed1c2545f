"""The plain eager loop, to which ratios are taken: one set of parameters, pre-sliced tensors on the device.

Run as `python benchmarks/speed/eager_loop.py --model cnn --clients 12`.
"""

import torch
from harness import arguments, measure, work_of
from torch import Tensor, nn
from work import LEARNING_RATE, Work, flat


class EagerLoop:
    def __init__(self, work: Work, device: str) -> None:
        self.module = work.usual_module().to(device).train()
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        x, y = (part.to(device) for part in work.data())
        self.clients = [list(zip(a.split(work.batch), b.split(work.batch))) for a, b in zip(x, y)]

    def round(self) -> None:
        start = [parameter.detach().clone() for parameter in self.parameters]
        total = [torch.zeros_like(value) for value in start]
        for batches in self.clients:
            for x, y in batches:
                loss = nn.functional.cross_entropy(self.module(x), y)
                gradients = torch.autograd.grad(loss, self.parameters)
                with torch.no_grad():
                    torch._foreach_add_(self.parameters, gradients, alpha=-LEARNING_RATE)
            with torch.no_grad():
                torch._foreach_add_(total, self.parameters)
                torch._foreach_copy_(self.parameters, start)
        with torch.no_grad():
            torch._foreach_div_(total, len(self.clients))
            torch._foreach_copy_(self.parameters, total)

    def weights(self) -> Tensor:
        return flat(self.parameters)


if __name__ == "__main__":
    given = arguments(__doc__)
    measure("eager-loop", given, EagerLoop(work_of(given), given.device))
