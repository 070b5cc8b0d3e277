"""Steps of the explicit Runge-Kutta method DOP853 (Hairer, Norsett and Wanner 1993) in compiled loops.

    y, f      state and its derivative
    h         step size
    K         derivatives at the twelve stages, and at the end of the step
    e5, e3    differences from the embedded formulas of orders 5 and 3

Of high order, it follows a smooth path to tight tolerances in few evaluations. The derivative is traced once.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.integrate import DOP853

_SAFETY, _SHRINK, _GROW = 0.9, 0.02, 10.0
_STAGES = len(DOP853.B)
_POINTS = np.vstack([np.pad(DOP853.A, ((0, 0), (0, 1))), np.pad(DOP853.B, (0, 1))])
"""Weights of the derivatives in the points at which the derivative is evaluated; the last is the end of the step."""


class Trial(NamedTuple):
    """A step that may be accepted.

    Attributes:
        end: state at its end, shape (n,).
        slope: derivative there.
        errors: e5 and e3, shape (2, n).
        stiffness: h times an estimate of the largest rate, which the method can follow up to about 6.
    """

    end: Float[Array, "n"]
    slope: Float[Array, "n"]
    errors: Float[Array, "2 n"]
    stiffness: Array


def trial_step(slope: Callable[[Array], Array], y: Float[Array, "n"], f: Float[Array, "n"], h: Array) -> Trial:
    """Return a step of size h."""
    points = jnp.asarray(_POINTS)

    def stage(s: Array, K: Array) -> Array:
        return K.at[s].set(slope(y + h * (points[s] @ K)))

    K = jax.lax.fori_loop(1, _STAGES + 1, stage, jnp.zeros((_STAGES + 1, len(y))).at[0].set(f))
    last, end = (y + h * (row @ K) for row in points[-2:])
    apart = jnp.linalg.norm(end - last)
    turned = jnp.linalg.norm(K[-1] - K[-2])
    errors = h * jnp.stack([jnp.asarray(DOP853.E5) @ K, jnp.asarray(DOP853.E3) @ K])
    return Trial(end, K[-1], errors, jnp.where(apart > 0, h * turned / jnp.where(apart > 0, apart, 1.0), 0.0))


def relative_error(squares: Float[Array, "2 *k"], count: Array | float) -> Float[Array, "*k"]:
    """Return the error of a step from the sums of squares of e5 and e3 over the allowed errors of `count` entries."""
    mixed = jnp.sqrt((squares[0] + 0.01 * squares[1]) * count)
    return jnp.where(mixed == 0, 0.0, squares[0] / jnp.where(mixed == 0, 1.0, mixed))  # NaN stays


def next_size(h: Array, error: Array) -> Array:
    """Return the size of the next step, or of the same one again if its error is above 1 or not finite."""
    factor = _SAFETY * jnp.maximum(error, 1e-30) ** (-1 / 8)
    largest = jnp.where(error <= 1, _GROW, 1.0)
    return h * jnp.where(jnp.isfinite(error), jnp.clip(factor, _SHRINK, largest), _SHRINK)
