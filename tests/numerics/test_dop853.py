"""Explicit steps of order 8 against those of SciPy: the step, its error, its interpolation and the next size."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import DOP853

from saddlescope.numerics import dop853


def pendulum(t, y):
    return np.array([y[1], -np.sin(y[0])])


@pytest.mark.parametrize("h", [0.4, 0.8])  # the error of shorter steps is rounding
def test_a_step_is_that_of_scipy(h):
    start, tolerance = np.array([1.0, 0.3]), 1e-4
    foreign = DOP853(pendulum, 0.0, start, 10.0, first_step=h, rtol=1e-13, atol=tolerance)
    foreign.step()
    assert foreign.t == h  # accepted at once
    slopes = np.zeros((dop853.SLOPES, 2))
    for k in range(dop853.SLOPES):
        slopes[k] = pendulum(0.0, start + h * dop853.WEIGHTS[k] @ slopes)
    change = h * dop853.WEIGHTS[dop853.STAGES] @ slopes
    np.testing.assert_allclose(start + change, foreign.y, rtol=1e-14)
    till_end = jnp.asarray(slopes[: dop853.STAGES + 1])
    _, size = dop853.error_of(till_end, jnp.asarray(h), jnp.asarray(tolerance))
    norm = foreign._estimate_error_norm(np.asarray(till_end), h, np.full(2, tolerance))
    np.testing.assert_allclose(float(size), norm, rtol=1e-6)
    np.testing.assert_allclose(float(dop853.growth(size)), min(10.0, 0.9 * norm ** (-1 / 8)), rtol=1e-6)
    terms = np.asarray(dop853.interpolation(jnp.asarray(slopes), jnp.asarray(h), jnp.asarray(change)))
    for x in (0.25, 0.5, 0.9):
        y = np.zeros(2)
        for k in reversed(range(len(terms))):
            y = (y + terms[k]) * (x if k % 2 == 0 else 1 - x)
        np.testing.assert_allclose(start + y, foreign.dense_output()(x * h), rtol=1e-13)
