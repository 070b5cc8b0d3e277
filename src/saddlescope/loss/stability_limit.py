"""Edge of stability: reject learning rates with which descent can settle at no minimum of a loss."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import PyTree

from saddlescope._shared.errors import InputError


@runtime_checkable
class HasStabilityLimit(Protocol):
    """A loss with a known learning rate beyond which descent settles at none of its minima."""

    def largest_learning_rate(self, weights: Any) -> float:
        """Return the bound for a network with weights of these shapes; infinite where there is none."""
        ...


def require_stable(loss: Any, weights: PyTree, rate: float) -> None:
    """Raise if the learning rate is beyond the edge of stability of all minima, where the loss knows it.

    Raises:
        InputError: the learning rate is too large.
    """
    if isinstance(loss, HasStabilityLimit) and rate > (bound := loss.largest_learning_rate(weights)):
        raise InputError(
            f"learning_rate must be at most {bound:.6g}, 2 over the least sharpness of a minimum, since beyond it "
            f"descent can settle at none; got {rate!r}."
        )
