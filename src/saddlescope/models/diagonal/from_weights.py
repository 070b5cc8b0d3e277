"""Conversion of a network f(x, u, v) into a network with diagonal weights, with a check that it is one.

Definition 3.1 of Boix-Adsera, Littwin, Abbe, Bengio and Susskind (2023) asks for f(x; u, v) = h(x; u * v). Such an f is
unchanged when u_i is multiplied and v_i divided by the same number, for each i, and h(x; beta) = f(x; beta, 1).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped

from saddlescope._shared.arguments import calling, validate_arguments
from saddlescope._shared.compiled_functions import compiled
from saddlescope._shared.errors import InputError
from saddlescope.models.diagonal.network import DiagonalNetwork, squared_error

_SAMPLES = 4  # on which the network is checked
_SAME = 1e-9  # relative change of an output that counts as rounding


@validate_arguments
def network_of_weights(
    f: Callable[[Array, Array, Array], Array],
    size: int,
    inputs: Shaped[Any, "..."],
    targets: Shaped[Any, "..."],
    loss: Callable[[Array, Array], Array] = squared_error,
) -> DiagonalNetwork:
    """Return f(x, u, v) as a network with diagonal weights, after a check that it depends on u * v alone.

    Args:
        f: function of one sample's input and the weights u and v, of shape (size,), to the network's output; twice
            continuously differentiable in u and v.
        size: p, the number of entries of u and of v.
        inputs: the samples' inputs, first axis the sample.
        targets: the samples' targets, first axis the sample.
        loss: function of one sample's target and output to its loss.

    Raises:
        InputError: f depends on u and v other than through u * v (the message names coordinates), cannot be called so,
            or is not finite at weights of order 1; or inputs and targets do not match.

    >>> import jax, jax.numpy as jnp
    >>> with jax.enable_x64(True):
    ...     network = network_of_weights(lambda x, u, v: (x * u) @ v, 2, jnp.eye(2), jnp.array([1.0, -1.0]))
    ...     float(network(jnp.array([1.0, 1.0])))
    2.0
    """
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise InputError(f"size must be an integer of at least 1, the length of u and of v; got {size!r}.")
    network = DiagonalNetwork(h=_OfProducts(f), inputs=jnp.asarray(inputs), targets=jnp.asarray(targets), loss=loss)
    with calling(
        f"f must accept one sample and weights u, v of shape ({size},) under jax.jit",
        "Check that size is the length of u and that f is written with jax.numpy.",
    ):
        wrong = np.flatnonzero(_depends_otherwise(f, network.inputs[:_SAMPLES], size))
    if wrong.size:
        named = ", ".join(map(str, wrong[:5])) + (", ..." if wrong.size > 5 else "")
        raise InputError(
            f"f must depend on u and v through u * v only; got an output that changes when u[i] is doubled and v[i] "
            f"halved, for i = {named}. Such a network is outside Definition 3.1: pass its loss to gradient_flow with "
            "a start at ParameterInit((u, v))."
        )
    return network


@dataclass(frozen=True)
class _OfProducts:
    """Function h(x; beta) = f(x; beta, 1); equal, and so compiled once, for equal f."""

    f: Callable[[Array, Array, Array], Array]

    def __call__(self, x: Array, beta: Array) -> Array:
        return self.f(x, beta, jnp.ones_like(beta))


def _depends_otherwise(f: Callable[..., Array], inputs: Array, size: int) -> Bool[np.ndarray, "p"]:
    """Mark each coordinate at which f changes when u_i is multiplied and v_i divided by 2 or -1/2 at random weights."""
    u, v = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.5, (2, size)))

    def change(factors: np.ndarray) -> float:
        return float(_change(f, inputs, u, v, jnp.asarray(factors)))

    if not bool(jnp.all(jnp.isfinite(_outputs(f, inputs, u, v)))):
        raise InputError(
            "f must be finite at weights between 0.5 and 1.5; got NaN or infinity. Look for a log or a root."
        )
    some = np.random.default_rng(1).choice([2.0, 0.25], size)
    if all(change(sign * some) <= _SAME for sign in (1, -1)):
        return np.zeros(size, dtype=bool)
    ones = np.ones(size)
    return np.array(
        [not all(change(np.where(np.arange(size) == i, c, ones)) <= _SAME for c in (2.0, -0.5)) for i in range(size)]
    )


@compiled
def _outputs(f: Callable[..., Array], inputs: Array, u: Array, v: Array) -> Array:
    return jax.vmap(f, in_axes=(0, None, None))(inputs, u, v)


@compiled
def _change(f: Callable[..., Array], inputs: Array, u: Array, v: Array, factors: Array) -> Array:
    rescaled, first = _outputs(f, inputs, u * factors, v / factors), _outputs(f, inputs, u, v)
    return jnp.max(jnp.abs(rescaled - first)) / (1e-300 + jnp.max(jnp.abs(rescaled)))
