"""A deeper network that escapes at least as fast: Proposition 3.2, by construction.

The last two layers of a network are a sum over the neurons i between them, of W_L's column i times the activation of
W_{L-1}'s row i. One neuron, rescaled, does at least as well as their mixture, since the mixture's weights

    |W_L column i| |W_{L-1} row i|,    whose sum is at most (|W_L|^2 + |W_{L-1}|^2) / 2,

are paid for by the norm. Its output is not negative, so that layers of one weight 1 can follow at no loss. It takes two
layers: at depth 1 the proposition fails. For X = (1, -1), G = (-1, 1) the linear network f(x) = x has speed 2, and no
deeper ReLU network on its own sphere has more than 1.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.theory.escape.speed import Network, checked_depth, checked_saddle, checked_weights, on_sphere


@validate_arguments
def deepen(weights: Sequence[ArrayLike], inputs: ArrayLike, gradients: ArrayLike, *, depth: int) -> Network:
    """The network of Proposition 3.2: of that depth, at least as fast, and of rank one from layer L - 1 on.

    Args:
        weights: W_1, ..., W_L with a positive speed, L >= 2; first brought to |theta|^2 = L, as the proposition has it.
        inputs: X (d_in, N).
        gradients: G (d_out, N).
        depth: of the new network, at least L; L itself only makes the last two layers rank one.

    Returns:
        W'_1, ..., W'_depth with |theta'|^2 = depth. Layers 1 to L - 2 are those given times a constant, all others have
        one neuron; the preactivations of layers L to depth - 1 are not negative, Zs = Z.

    Raises:
        InputError: what `checked_saddle` and `checked_weights` refuse; a speed that is not positive; a depth below L.
    """
    X, G = checked_saddle(inputs, gradients)
    *lower, entering, leaving = on_sphere(checked_weights(weights, X, G))
    wanted = checked_depth(depth)
    if wanted < len(weights):
        raise InputError(f"depth must be at least that of the network, {len(weights)}; got {depth!r}.")
    hidden = X
    for weight in lower:
        hidden = np.maximum(weight @ hidden, 0.0)
    # Row by row: what neuron i adds to the speed, and the norms that it costs.
    speeds = -np.sum((leaving.T @ G) * np.maximum(entering @ hidden, 0.0), axis=1)
    rows, columns = np.linalg.norm(entering, axis=1), np.linalg.norm(leaving, axis=0)
    costs = rows * columns
    if not speeds.sum() > 0:
        raise InputError(f"weights must have a positive speed to be deepened; got {float(speeds.sum())!r}.")
    rates = np.divide(speeds, costs, out=np.full_like(speeds, -np.inf), where=costs > 0)
    best = int(np.argmax(rates))
    size = np.sqrt(costs.sum())
    return on_sphere(
        (
            *lower,
            size * entering[best, None] / rows[best],
            *[np.eye(1)] * (wanted - len(weights)),
            size * leaving[:, best, None] / columns[best],
        )
    )
