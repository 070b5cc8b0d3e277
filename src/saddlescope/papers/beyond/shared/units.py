"""Units and losses of the entries, in JAX: the same functions for all seeds, so that each is compiled once."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Weights = dict[str, Array]
"""Weights of one unit by name."""


def coordinate(theta: Float[Array, "2"], x: Float[Array, "p"], kind: Array) -> Array:
    """Return the output of one coordinate of a diagonal network."""
    return theta[0] * theta[1] * x[kind]


def linear_neuron(theta: Weights, x: Float[Array, "d"]) -> Float[Array, "o"]:
    """Return the outputs of one neuron of a linear network."""
    return theta["out"] * (theta["in"] @ x)


@dataclass(frozen=True)
class LinearKernel:
    """One kernel that slides over a signal, with its weights in a linear read-out of all positions."""

    stride: int

    def __call__(self, theta: Weights, x: Float[Array, "t"]) -> Float[Array, "o"]:
        """Return the outputs."""
        return theta["out"] @ jnp.correlate(x, theta["kernel"], mode="valid")[:: self.stride]


def relu_neuron(theta: Weights, x: Float[Array, "d"]) -> Array:
    """Return the output of one ReLU neuron."""
    return theta["a"] * jax.nn.relu(theta["w"] @ x)


def quadratic_neuron(theta: Weights, x: Float[Array, "2 d"]) -> Float[Array, "o"]:
    """Return the outputs of one neuron with a squared sum of two inputs."""
    return theta["w"] * jnp.square(theta["u"] @ x[0] + theta["v"] @ x[1])


def linear_head(theta: Weights, x: Array) -> Float[Array, "d d"]:
    """Return v q k^T of one head of linear attention, whatever the sample."""
    return theta["v"] * theta["q"][:, None] * theta["k"][None, :]


def square(output: Array, target: Array) -> Array:
    """Return the squared error."""
    return jnp.sum((output - target) ** 2)


def half_square(output: Array, target: Array) -> Array:
    """Return half of the squared error."""
    return 0.5 * square(output, target)


def context_loss(F: Float[Array, "d d"], moments: Weights) -> Array:
    """Return the loss of linear attention over all contexts, from the second and fourth moments of the inputs."""
    covariance, second = moments["covariance"], moments["second"]
    mixed = jnp.sum(covariance * (F @ covariance).T)
    return (jnp.trace(covariance) - 2 * mixed + jnp.sum((covariance @ F @ second) * F)) / 2


class MapLoss(eqx.Module):
    """Mean of half the squared error of a linear map, which is the only product."""

    X: Float[Array, "n d"]
    Y: Float[Array, "n o"]

    def __call__(self, products: tuple[Float[Array, "d o"]]) -> Array:
        """Return the loss of the map."""
        return 0.5 * jnp.mean(jnp.sum((self.X @ products[0] - self.Y) ** 2, axis=1))


class ConvolutionLoss(eqx.Module):
    """Mean of half the squared error of a sum over patches of a signal, the only product: (w, (output, position))."""

    patches: Float[Array, "n p k"]
    Y: Float[Array, "n o"]

    def __call__(self, products: tuple[Float[Array, "k c"]]) -> Array:
        """Return the loss of the kernels and their read-out."""
        B = products[0].reshape(self.patches.shape[2], self.Y.shape[1], self.patches.shape[1])
        outputs = jnp.einsum("npk,kop->no", self.patches, B)
        return 0.5 * jnp.mean(jnp.sum((outputs - self.Y) ** 2, axis=1))
