"""Networks with diagonal weights: f(x; u, v) = h(x; u * v) for any twice-differentiable h.   (Definition 3.1)

    u, v    the trained weights, each of shape (p,)
    beta    their elementwise product u * v: all that the network's output depends on
    L       mean loss over the samples
    g       -dL/dbeta; u' = v * g, v' = u * g under gradient flow (equation 4)
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped


def squared_error(target: Array, prediction: Array) -> Array:
    """Mean over the entries of the squared difference, without a factor 1/2."""
    return jnp.mean((prediction - target) ** 2)


class DiagonalNetwork(eqx.Module):
    """The loss L(beta) of a network with diagonal weights on a data set.

    Attributes:
        h: one sample's input and beta to the network's output; twice continuously differentiable in beta.
        inputs: the samples' inputs, first axis the sample.
        targets: the samples' targets, first axis the sample.
        loss: one sample's target and output to its loss; twice continuously differentiable.
    """

    h: Callable[[Array, Array], Array] = eqx.field(static=True)
    inputs: Shaped[Array, "n ..."]
    targets: Shaped[Array, "n ..."]
    loss: Callable[[Array, Array], Array] = eqx.field(static=True, default=squared_error)

    def __call__(self, beta: Float[Array, "p"]) -> Float[Array, ""]:
        """L(beta)."""
        predictions = jax.vmap(self.h, in_axes=(0, None))(self.inputs, beta)
        return jnp.mean(jax.vmap(self.loss)(self.targets, predictions))
