"""Inverse-probability weights, [P1] Eq. 3: the expected step is that of full participation.

c_is = counts_is d_is / (B_i p_is). Since E[counts] = B p, the expectation of sum_i c_is G_is is
sum_i d_is G_is for any p > 0 fixed before the draw.
"""

from fedmux.aggregation.aggregator import Aggregator
from fedmux.allocation import Assignment
from fedmux.population import Floats


class Unbiased(Aggregator):
    def job_weights(self, assignment: Assignment, shares: Floats) -> Floats:
        return assignment.count * shares / assignment.expected
