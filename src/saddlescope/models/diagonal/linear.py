"""Diagonal linear networks, h(x; beta) = x . beta: the simplest networks with diagonal weights.

Berthier (2022), "Incremental learning in diagonal linear networks"; Pesme and Flammarion (2023),
"Saddle-to-saddle dynamics in diagonal linear networks". Both halve the loss, which doubles all times.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope.loss.abstract_loss import AbstractLoss
from saddlescope.models.diagonal.network import DiagonalNetwork, squared_error


def linear_output(x: Float[Array, "p"], beta: Float[Array, "p"]) -> Float[Array, ""]:
    """Return the output x . beta of a diagonal linear network."""
    return jnp.dot(x, beta)


class QuadraticLoss(AbstractLoss):
    """Loss beta . (H beta / 2 + g), a quadratic loss up to a constant.

    Attributes:
        second: H, its Hessian.
        first: g, its gradient at 0.
    """

    second: Float[Array, "p p"]
    first: Float[Array, "p"]

    def __call__(self, beta: Float[Array, "p"]) -> Float[Array, ""]:
        """Return the loss."""
        return self.value_and_gradient(beta)[0]

    def value_and_gradient(self, beta: Float[Array, "p"]) -> tuple[Float[Array, ""], Float[Array, "p"]]:
        """Return the loss and H beta + g."""
        product = self.second @ beta
        return beta @ (product / 2 + self.first), product + self.first


class DiagonalLinearNetwork(DiagonalNetwork):
    """Loss L(beta) = |features beta - targets|^2 / n, whose Hessian is constant."""

    def with_fewest_products(self) -> "DiagonalLinearNetwork | QuadraticLoss":
        """Return a loss with this gradient, up to rounding, that takes the fewest products per evaluation.

        That is the quadratic form where there are more samples than half the coordinates.
        """
        p = self.inputs.shape[1]
        if 2 * self.samples <= p:
            return self
        return QuadraticLoss(self.hessian(jnp.zeros(p)), -2 / self.samples * self.targets @ self.inputs)

    def hessian(self, beta: Float[Array, "p"]) -> Float[Array, "p p"]:
        """Return 2 features^T features / n."""
        return self.hessian_columns(beta, jnp.arange(beta.size))

    def hessian_columns(self, beta: Float[Array, "p"], columns: Int[Array, "m"]) -> Float[Array, "p m"]:
        """Return some columns of 2 features^T features / n."""
        return 2 / self.samples * self.inputs.T @ self.inputs[:, columns]


@in_float64
@validate_arguments
def diagonal_linear_network(features: Float[Any, "..."], targets: Float[Any, "..."]) -> DiagonalLinearNetwork:
    """Return the diagonal linear network with the squared error on these samples.

    Args:
        features: the samples' features x, shape (n, p).
        targets: the samples' targets y, shape (n,).

    Returns:
        The loss L(beta) = (1/n) sum_i (x_i . beta - y_i)^2, without a factor 1/2.

    Raises:
        InputError: shapes that do not match, or a value that is not finite.
    """
    features, targets = jnp.asarray(features), jnp.asarray(targets)
    if features.ndim != 2 or targets.ndim != 1:
        raise InputError(
            f"features must have shape (n, p) and targets shape (n,); got {features.shape!r} and {targets.shape!r}."
        )
    return DiagonalLinearNetwork(h=linear_output, inputs=features, targets=targets, loss=squared_error)
