"""A metric of your own: one value for each point, the score is their mean; see docs/metrics.md."""

from torch import Tensor


def dice(outputs: Tensor, targets: Tensor) -> Tensor:
    """Overlap of what was found and what is there: (batch, pixels) twice -> (batch,), from 0 to 1."""
    found = (outputs > 0).float()
    both = (found * targets).sum(1)
    return (2 * both + 1) / (found.sum(1) + targets.sum(1) + 1)
