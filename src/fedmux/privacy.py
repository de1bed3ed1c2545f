"""Local differential privacy: each client clips its update and adds Gaussian noise before sending it.

The server never sees an update without noise. For any two data sets a client might hold, its clipped updates
differ by at most twice the clip. That is the sensitivity, so the guarantee covers all of a client's points
together. Losses and norms that allocators ask for are not covered.
"""

import math

import torch
from numpy.random import Generator
from pydantic import Field, field_validator
from torch import Tensor

from fedmux.settings import Checked

LEAST_NOISE = 1e-6


class Privacy(Checked):
    """Clipping and noise that a client applies to its update before sending it."""

    clip: float = Field(gt=0, description="largest norm of an update; longer updates are scaled down")
    noise: float = Field(
        0.0,
        ge=0,
        description="standard deviation of Gaussian noise on each entry, in units of `clip`",
    )

    @field_validator("noise")
    @classmethod
    def _not_vanishing(cls, value: float) -> float:
        if 0 < value < LEAST_NOISE:
            raise ValueError(f"should be 0, or at least {LEAST_NOISE:g}")
        return value

    delta: float = Field(1e-5, gt=0, lt=1, description="of the (epsilon, delta) guarantee in the summary")

    def clipped(self, updates: Tensor) -> Tensor:
        """k x P, each row no longer than `clip`."""
        # Squares of large entries overflow in float32, which would scale the update to zero.
        norms = torch.linalg.vector_norm(updates, dim=1, keepdim=True, dtype=torch.float64)
        return updates * torch.clamp(self.clip / norms.clamp(min=1e-30), max=1.0).to(updates)

    def sent(self, updates: Tensor, sources: list[Generator]) -> Tensor:
        """Clipped, with noise from one source per row."""
        updates = self.clipped(updates)
        if self.noise:
            for update, source in zip(updates, sources):
                noise = torch.from_numpy(source.standard_normal(len(update), dtype="float32"))
                update += self.clip * self.noise * noise.to(update.device)
        return updates

    def epsilon(self, releases: int) -> float | None:
        """A client's privacy loss at `delta` after this many updates; None without noise.

        One release with sensitivity 2 clip is rho-zCDP with rho = 2 / noise^2; rho adds up over releases, and
        epsilon = rho + 2 sqrt(rho ln(1 / delta)) (Bun and Steinke 2016, Propositions 1.3, 1.6 and Lemma 1.7).
        """
        if not self.noise:
            return None
        rho = releases * 2 / self.noise**2
        return rho + 2 * math.sqrt(rho * math.log(1 / self.delta))
