"""Edge of stability: reject learning rates with which descent can settle at no minimum of a loss."""

from jaxtyping import PyTree

from saddlescope._shared.errors import InputError
from saddlescope.loss.abstract_loss import as_loss
from saddlescope.loss.compiled import Loss


def require_stable(loss: Loss, weights: PyTree, rate: float) -> None:
    """Raise if the learning rate is beyond the edge of stability of all minima, where the loss knows it.

    Raises:
        InputError: the learning rate is too large.
    """
    bound = as_loss(loss).largest_learning_rate(weights)
    if rate > bound:
        raise InputError(
            f"learning_rate must be at most {bound:.6g}, 2 over the least sharpness of a minimum, since beyond it "
            f"descent can settle at none; got {rate!r}."
        )
