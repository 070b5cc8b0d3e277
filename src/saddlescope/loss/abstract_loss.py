"""Contract of a loss: a function of a pytree of weights, with derivatives and a few declared extras."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree


class AbstractLoss(eqx.Module):
    """A loss of weights, twice continuously differentiable.

    Derivatives are those of automatic differentiation; a subclass that computes them itself overrides their methods.
    All methods may be called in compiled code. The arrays of a loss are its fields, so that losses of one class with
    arrays of one shape share compiled code.
    """

    @abstractmethod
    def __call__(self, weights: Any, /) -> Float[Array, ""]:
        """Return the loss of a pytree of arrays."""

    def value_and_gradient(self, weights: Any, /) -> tuple[Float[Array, ""], Any]:
        """Return the loss and its gradient, a pytree like the weights."""
        return jax.value_and_grad(self)(weights)

    def hessian_columns(self, weights: Any, columns: Int[Array, "m"], /) -> Float[Array, "n m"]:
        """Return some columns of the Hessian, by the entries of all arrays one after the other."""
        flat, build = ravel_pytree(weights)
        times = jax.linearize(jax.grad(lambda at: self(build(at))), flat)[1]
        return jax.lax.map(lambda column: times(jnp.zeros_like(flat).at[column].set(1.0)), columns, batch_size=8).T

    def with_fewest_products(self) -> "AbstractLoss":
        """Return a loss with the same gradients, up to rounding, that takes the fewest products; perhaps this one."""
        return self

    def largest_learning_rate(self, weights: Any, /) -> float:
        """Return the learning rate beyond which descent settles at no minimum; infinite where none is known."""
        return float("inf")


class FunctionLoss(AbstractLoss):
    """A function of weights as a loss.

    Attributes:
        function: from a pytree of arrays to one number, which JAX can differentiate twice.
    """

    function: Callable[[PyTree], Array]

    def __call__(self, weights: Any, /) -> Any:  # of any type and shape, until it is checked
        """Return the function's value."""
        return self.function(weights)


def as_loss(loss: Callable[[PyTree], Array]) -> AbstractLoss:
    """Return an `AbstractLoss` unchanged; wrap any other function in a `FunctionLoss`."""
    return loss if isinstance(loss, AbstractLoss) else FunctionLoss(loss)
