"""Explicit steps of order 8 in JAX: DOP853, with the coefficients of SciPy.

Hairer, Norsett and Wanner (1993), "Solving ordinary differential equations I", sections II.5 and II.6. A step has
`STAGES` slopes, that at its end, which begins the next one, and `MORE` for its interpolation of order 7.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.integrate import DOP853

STAGES, MORE = DOP853.n_stages, len(DOP853.A_EXTRA)
SLOPES = STAGES + 1 + MORE

WEIGHTS = np.zeros((SLOPES, SLOPES))
"""Weights of earlier slopes in the state at which each is evaluated; row `STAGES` is the step."""

WEIGHTS[:STAGES, :STAGES], WEIGHTS[STAGES + 1 :] = DOP853.A, DOP853.A_EXTRA
WEIGHTS[STAGES, :STAGES] = DOP853.B

SHRINK, GROW = 0.2, 10.0
"""Bounds on the factor between two step sizes."""

_SAFETY, _TINY = 0.9, 1e-30


def error_of(
    slopes: Float[Array, "13 n"], h: Float[Array, ""], scale: Float[Array, "n"] | Float[Array, ""]
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Return the estimated error of a step, and its size: at most 1 where the step is good enough.

    Args:
        slopes: of all stages, and at the end.
        h: size of the step.
        scale: error that an entry may have.
    """
    fifth, third = (h * jnp.asarray(each) @ slopes for each in (DOP853.E5, DOP853.E3))
    first, second = (jnp.mean((each / scale) ** 2) for each in (fifth, third))
    return fifth, first / jnp.sqrt(first + 0.01 * second + _TINY)


def growth(error: Float[Array, ""]) -> Float[Array, ""]:
    """Return the factor by which the next step should differ, given the size of the last error."""
    return jnp.clip(_SAFETY * jnp.maximum(error, _TINY) ** (-1 / 8), SHRINK, GROW)


def interpolation(slopes: Float[Array, "16 n"], h: Float[Array, ""], change: Float[Array, "n"]) -> Float[Array, "7 n"]:
    """Return the terms of the interpolation, given all slopes of a step and its change of the state."""
    ends = h * slopes[0], h * slopes[STAGES]
    first = jnp.stack([change, ends[0] - change, 2 * change - ends[0] - ends[1]])
    return jnp.concatenate([first, h * jnp.asarray(DOP853.D) @ slopes])
