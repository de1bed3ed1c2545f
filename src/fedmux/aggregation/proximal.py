"""FedProx (Li et al. 2020): a pull of strength mu towards the global model in every local step."""

from torch import Tensor

from fedmux.aggregation.local_rule import LocalRule


class Proximal(LocalRule):
    def __init__(self, mu: float) -> None:
        self.mu = mu

    def gradient(self, gradient: Tensor, weights: Tensor, start: Tensor, correction: Tensor | None) -> Tensor:
        return gradient + self.mu * (weights - start)
