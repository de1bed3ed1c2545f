"""The devices that a run may compute on."""

import torch

from fedmux.errors import FedmuxError


def find_device(name: str, rank: int = 0) -> torch.device:
    """`auto`, `cpu`, `cuda` (the rank's own) or `cuda:1`; FedmuxError if there is none."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise FedmuxError(
            f'execution.device = "{name}": there is no CUDA device here; choose "cpu" or "auto"'
        )
    count = torch.cuda.device_count()
    index = int(name.partition(":")[2] or rank % count) if name != "auto" else rank % count
    if index >= count:
        raise FedmuxError(f'execution.device = "{name}": there are only {count}, numbered from 0')
    return torch.device("cuda", index)
