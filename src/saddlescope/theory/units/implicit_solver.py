"""Steps of the linearly implicit Rosenbrock method of order 2 with an error estimate of order 3, in compiled loops.

Where a kink is rounded, the state slides along it in directions that are stiff: an implicit method does so in long
steps (Shampine and Reichelt 1997, ode23s).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_D = 1 / (2 + 2**0.5)
_E32 = 6 + 2**0.5
_SAFETY, _SHRINK, _GROW = 0.8, 0.1, 5.0


class ImplicitTrial(NamedTuple):
    """A step that may be accepted.

    Attributes:
        end: state at its end, shape (n,).
        slope: derivative there.
        errors: estimate of its errors, shape (n,).
        growth: h times the fastest growth of a deviation, which a longer step would damp instead: at most 1.
    """

    end: Float[Array, "n"]
    slope: Float[Array, "n"]
    errors: Float[Array, "n"]
    growth: Array


def implicit_step(
    slope: Callable[[Array], Array], y: Float[Array, "n"], f: Float[Array, "n"], h: Array
) -> ImplicitTrial:
    """Return a step of size h from a state with derivative f."""
    J = jax.jacfwd(slope)(y)
    W = jnp.eye(len(y)) - h * _D * J
    solve = lambda right: jnp.linalg.solve(W, right)  # noqa: E731
    k1 = solve(f)
    middle = slope(y + h / 2 * k1)
    k2 = solve(middle - k1) + k1
    end = y + h * k2
    after = slope(end)
    k3 = solve(after - _E32 * (k2 - middle) - 2 * (k1 - f))
    return ImplicitTrial(end, after, h / 6 * (k1 - 2 * k2 + k3), h * jnp.linalg.eigvalsh((J + J.T) / 2)[-1])


def next_implicit_size(h: Array, error: Array) -> Array:
    """Return the size of the next step from that of the last one and its error over the allowed error."""
    factor = _SAFETY * jnp.maximum(error, 1e-10) ** (-1 / 3)
    return h * jnp.where(jnp.isfinite(error), jnp.clip(factor, _SHRINK, _GROW), _SHRINK)
