"""What clients train: modules, losses and metrics, each by name or as the user's own `module:name`."""

from fedmux.tasks.losses import Loss, build_loss
from fedmux.tasks.metrics import Metric, build_metric
from fedmux.tasks.registry import build

__all__ = ["Loss", "Metric", "build", "build_loss", "build_metric"]
