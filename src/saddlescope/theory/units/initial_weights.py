"""Initial weights of units before they are scaled by alpha: given, or random."""

import numpy as np
from jaxtyping import Float, Int, PyTree

from saddlescope._shared.errors import InputError
from saddlescope.theory.units.unit_network import UnitNetwork

_DORMANT = 64  # random initial weights of each kind


def initial_weights(
    network: UnitNetwork, width: int | None, weights: PyTree | None, seed: int
) -> tuple[Float[np.ndarray, "m p"], Int[np.ndarray, "m"]]:
    """Return flat initial weights and the kind of each unit."""
    if weights is None:
        each = width or _DORMANT
        start = np.random.default_rng(seed).standard_normal((network.kinds * each, network.size))
        return start, np.repeat(np.arange(network.kinds), each)
    start = network.flat_weights(weights)
    each, left = divmod(len(start), network.kinds)
    if left or each < 1 or (width is not None and each != width):
        wanted = "a multiple of kinds" if width is None else "kinds * width"
        raise InputError(f"weights must have a leading axis of units, {wanted} of them; got {len(start)}.")
    return start, np.repeat(np.arange(network.kinds), each)
