"""How updates become the next global models. Flat vectors in torch; one rule per file."""

from fedmux.aggregation.aggregator import Aggregator, Updates
from fedmux.aggregation.average import Average
from fedmux.aggregation.local_rule import LocalRule
from fedmux.aggregation.unbiased import Unbiased

__all__ = ["Aggregator", "Average", "LocalRule", "Unbiased", "Updates"]
