"""A new parametrisation needs coordinates and a start alone: beta = u^3 - v^3 against its closed form."""

import jax.numpy as jnp
import numpy as np
from scipy.integrate import quad
from tests import tolerances
from tests.flow.diagonal.cubic_weights import CubicInit

from saddlescope.flow import gradient_descent, gradient_flow

A, B = np.array([1.0, 0.4, 2.0]), np.array([1.0, -0.8, 0.5])
START = CubicInit(np.array([0.02, 0.03, 0.01]), np.array([0.01, 0.02, 0.015]))


def loss(beta):
    return 0.5 * jnp.sum(jnp.asarray(A) * (jnp.asarray(B) - beta) ** 2)


def test_crossings_are_where_the_integral_of_dy_over_g_puts_them():
    """y' = g(beta(y)), so that t = integral of dy / (a (b - beta(y))) from 0 to where beta is at the level."""
    tolerance, level = 1e-6, 0.3
    flow = gradient_flow(loss, START, until=300.0, tolerance=tolerance, level=level)
    np.testing.assert_allclose(flow.beta[-1], B, atol=1e-6)
    coordinates = START.flow_coordinates()
    ends = dict(zip((-1, 1), coordinates.band(level), strict=True))
    assert sorted((c.index, c.sign) for c in flow.crossings) == [(0, 1), (1, -1), (2, 1)]
    for c in flow.crossings:

        def pace(y, i=c.index):
            return 1 / (A[i] * (B[i] - coordinates.point(np.full(3, y))[i]))

        exact = quad(pace, 0, ends[c.sign][c.index], epsabs=0, epsrel=1e-11, limit=200)[0]
        np.testing.assert_allclose(c.time, exact, rtol=tolerances.FLOW_STAGE_TIME * tolerance)
    u, v = flow.parameters(flow.times)
    invariant = 1 / u + 1 / v  # conserved along the flow
    np.testing.assert_allclose(invariant, np.tile(invariant[0], (len(u), 1)), rtol=1e-9)


def test_descent_in_the_weights_approaches_the_flow():
    flow = gradient_flow(loss, START, until=30.0, tolerance=1e-6)
    steps = gradient_descent(loss, START, steps=3000, learning_rate=0.01)
    np.testing.assert_allclose(steps.times[-1], 30.0, rtol=1e-12)
    np.testing.assert_allclose(steps.values[-1], flow.values[-1], atol=2e-2)
