"""Which drawn clients return their updates, and how the weights of those that do are corrected."""

import math

import numpy as np

from fedmux.dynamics.settings import Dropout, Stragglers, rates
from fedmux.population import Bools, Floats, Ints
from fedmux.randomness import Stream, generator


class Returns:
    """Which drawn clients return, which of them in time, and how likely that is."""

    def __init__(
        self, dropout: Dropout | None, clients: int, seed: int, stragglers: Stragglers | None = None
    ) -> None:
        self.dropout, self.stragglers, self.seed = dropout, stragglers, seed
        loss = rates(dropout.rate, clients, generator(seed, Stream.DROPOUT)) if dropout else np.zeros(clients)
        self.probability = 1 - loss  # N: of returning at all
        self.drawn, self.returned = np.zeros(clients), np.zeros(clients)

    def enough(self, clients: Ints, over_selection: float) -> int | None:
        """How many of the drawn clients (J) to wait for, given the over-selection factor; None: all."""
        if self.stragglers is None:
            return None
        return math.ceil(len(np.unique(clients)) / over_selection - 1e-9)

    def draw(self, round: int) -> Bools:
        """Clients that would return in this round (N)."""
        rng = generator(self.seed, Stream.DROPOUT, round=round + 1)
        return rng.random(len(self.probability)) < self.probability

    def first(self, clients: Ints, back: Bools, enough: int | None, round: int) -> Bools:
        """Of the jobs that come back (J), those of the fastest `enough` clients."""
        came = np.unique(clients[back])
        if self.stragglers is None or enough is None or len(came) <= enough:
            return back
        slowness = generator(self.seed, Stream.SPEED).standard_normal(len(self.probability))
        times = generator(self.seed, Stream.SPEED, round=round + 1).exponential(size=len(self.probability))
        times *= np.exp(self.stragglers.spread * slowness)
        return back & np.isin(clients, came[np.argsort(times[came])[:enough]])

    def correction(self, clients: Ints, came: Bools, back: Bools) -> Floats:
        """Divisors of the weights (N), given which jobs (J) could have come back and which were taken.

        Each client drops out with its own probability; all that could come back are equally likely to be
        among the first. Dividing by the product keeps the expected step, even if a round may lose everyone.
        """
        if self.stragglers is not None and self.stragglers.correction == "estimated":
            return self._estimated()
        kind = self.dropout.correction if self.dropout else "none"
        chance = {"known": self.probability, "estimated": self._estimated()}.get(kind)
        chance = np.ones(len(self.probability)) if chance is None else chance
        if self.stragglers is None:
            return chance
        return chance * len(np.unique(clients[back])) / max(1, len(np.unique(clients[came])))

    def _estimated(self) -> Floats:
        """N: from each client's own record, shrunk towards the fleet's while it is short."""
        fleet = (self.returned.sum() + 1) / (self.drawn.sum() + 1)
        return (self.returned + 5 * fleet) / (self.drawn + 5)

    def learn(self, clients: Ints, came: Bools, back: Bools) -> None:
        """Record a round: the clients drawn, and which came back (or were taken, if that is what counts)."""
        taken = back if self.stragglers is not None and self.stragglers.correction == "estimated" else came
        self.drawn[clients] += 1
        self.returned[clients[taken]] += 1

    def state(self) -> dict[str, np.ndarray]:
        estimates = self.dropout or self.stragglers
        return {"drawn": self.drawn, "returned": self.returned} if estimates else {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if state:
            self.drawn, self.returned = state["drawn"].copy(), state["returned"].copy()
