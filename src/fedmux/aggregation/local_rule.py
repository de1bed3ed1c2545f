"""What a method changes in a client's local step."""

from torch import Tensor

from fedmux.population import Ints

Scalar = int | float | str  # bool is an int


class LocalRule:
    """Changes a client's local step. Elementwise, so that it also runs on stacked clients."""

    def corrections(self, task: int, clients: Ints) -> Tensor | None:
        """Vectors (k x P) sent to these clients with the model, if the rule needs them."""
        return None

    def gradient(self, gradient: Tensor, weights: Tensor, start: Tensor, correction: Tensor | None) -> Tensor:
        """The gradient to step along, from the loss's gradient at `weights`; before clipping and momentum.

        Must depend only on its arguments and constants: on a GPU it is captured once and replayed later.
        """
        raise NotImplementedError

    def arguments(self) -> dict[str, Scalar]:
        """Keyword arguments from which a real client rebuilds the rule: by default its attributes.

        Only `gradient` is called there; the correction comes with the model.
        """
        return dict(vars(self))
