"""Where and how the simulator computes: device, precision, and one client at a time or many."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedmux.distributed.devices import find_device
from fedmux.distributed.team import ALONE, Team, from_environment
from fedmux.experiment import Execution
from fedmux.experiment.sections import Local, Precision


@dataclass(frozen=True)
class Engine:
    device: torch.device = field(default=torch.device("cpu"))
    precision: Precision = "fp32"
    local: Local = "auto"  # auto: stacked on a GPU, loop on a CPU, where it is fastest

    @classmethod
    def asked_for(cls, settings: Execution, team: Team = ALONE) -> "Engine":
        """The engine an experiment asks for; FedmuxError if its device is missing."""
        local_rank = int(os.environ.get("LOCAL_RANK", 0)) if from_environment() else team.rank
        return cls(find_device(settings.device, local_rank), settings.precision, settings.local)

    @property
    def stacks(self) -> bool:
        return self.local == "stacked" or (self.local == "auto" and self.device.type == "cuda")

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Forward and backward passes in the chosen precision; sums and weights stay in float32."""
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, cudnn.allow_tf32
        matmul.allow_tf32 = cudnn.allow_tf32 = self.precision == "tf32"
        half = self.precision == "bf16"
        # No cache of cast weights: it would outlive the memory of a captured graph.
        cast = torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)
        try:
            with cast if half else nullcontext():
                yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = before


CPU = Engine()


def whole(outputs: Tensor) -> Tensor:
    """A module's outputs, at least in float32: losses are not computed in half precision."""
    return outputs.float() if outputs.element_size() < 4 else outputs
