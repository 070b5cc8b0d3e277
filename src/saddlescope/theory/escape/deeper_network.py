"""Construction of a deeper network that escapes at least as fast: Proposition 3.2.

The last two layers of a network are a sum over the neurons i between them, of W_L's column i times the activation of
W_{L-1}'s row i. One neuron, rescaled, is at least as fast as their mixture, since the norm bounds the weights

    |W_L column i| |W_{L-1} row i|,    whose sum is at most (|W_L|^2 + |W_{L-1}|^2) / 2,

of the mixture. Its output is not negative, so that layers of one weight 1 can follow at no loss. This needs two layers:
at depth 1 the proposition fails. For X = (1, -1), G = (-1, 1) the linear network f(x) = x has speed 2, and no deeper
ReLU network on the sphere |theta|^2 = L has more than 1.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.theory.escape.speed import Network, on_sphere, validate_depth, validate_saddle, validate_weights


@validate_arguments
def deepen(weights: Sequence[ArrayLike], inputs: ArrayLike, gradients: ArrayLike, *, depth: int) -> Network:
    """Return the network of Proposition 3.2: of that depth, at least as fast, and of rank one from layer L - 1 on.

    Args:
        weights: W_1, ..., W_L with a positive speed, L >= 2; first rescaled to |theta|^2 = L, as in the proposition.
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.
        depth: of the new network, at least L; at depth L only the last two layers change, to rank one.

    Returns:
        W'_1, ..., W'_depth with |theta'|^2 = depth. Layers 1 to L - 2 are those given times a constant, all others have
        one neuron; the preactivations of layers L to depth - 1 are not negative, Zs = Z.

    Raises:
        InputError: invalid inputs, gradients or weights, see `validate_saddle` and `validate_weights`; a speed that is
            not positive; a depth below L.
    """
    X, G = validate_saddle(inputs, gradients)
    *lower, incoming, outgoing = on_sphere(validate_weights(weights, X, G))
    if validate_depth(depth) < len(weights):
        raise InputError(f"depth must be at least that of the network, {len(weights)}; got {depth!r}.")
    hidden = X
    for weight in lower:
        hidden = np.maximum(weight @ hidden, 0.0)
    # Row by row: the contribution of neuron i to the speed, and its norms.
    speeds = -np.sum((outgoing.T @ G) * np.maximum(incoming @ hidden, 0.0), axis=1)
    rows, columns = np.linalg.norm(incoming, axis=1), np.linalg.norm(outgoing, axis=0)
    costs = rows * columns
    if not speeds.sum() > 0:
        raise InputError(f"weights must have a positive speed to be deepened; got {float(speeds.sum())!r}.")
    rates = np.divide(speeds, costs, out=np.full_like(speeds, -np.inf), where=costs > 0)
    best = int(np.argmax(rates))
    size = np.sqrt(costs.sum())
    return on_sphere(
        (
            *lower,
            size * incoming[best, None] / rows[best],
            *[np.eye(1)] * (depth - len(weights)),
            size * outgoing[:, best, None] / columns[best],
        )
    )
