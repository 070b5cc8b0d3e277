"""Flows of diagonal weights against closed forms: followed one at a time, and many at once."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from tests import problems, tolerances
from tests.problems import LOG10, Separate

from saddlescope.flow import DiagonalInit, gradient_flow, gradient_flow_batched
from saddlescope.models import diagonal_linear_network


def one_at_a_time(loss, starts, **given):
    losses = loss if isinstance(loss, list) else [loss] * len(starts)
    return [gradient_flow(each, start, **given) for each, start in zip(losses, starts, strict=True)]


BOTH = pytest.mark.parametrize("follow", [one_at_a_time, gradient_flow_batched])


@BOTH
def test_one_coordinate_is_logistic_at_every_scale(follow):
    """With u = v, beta' = 2 beta (1 - beta): beta = s at the time log(s / (1 - s) (1 - beta0) / beta0) / 2."""
    digits = [1, 2, 8, 32, 256, 4096]
    starts = [DiagonalInit(np.ones(1), np.ones(1), -d * LOG10) for d in digits]
    flows = follow(Separate(jnp.ones(1), jnp.ones(1)), starts, until=3.0, tolerance=1e-6, level=0.5)
    for flow, d in zip(flows, digits, strict=True):
        beta0 = 10.0 ** (-2 * d) if d < 100 else 0.0
        (crossing,) = flow.crossings
        assert (crossing.index, crossing.rising, crossing.sign) == (0, True, 1)
        exact = (2 * d * LOG10 + np.log1p(-beta0)) / 2 / (d * LOG10)
        np.testing.assert_allclose(crossing.time, exact, rtol=tolerances.FLOW_STAGE_TIME * 1e-6)
        raw = d * LOG10 * (flow.times - exact)
        slack = 2 * tolerances.FLOW_STAGE_TIME * 1e-6 * d * LOG10 / 4
        np.testing.assert_allclose(flow(flow.times)[:, 0], 0.5 * (1 + np.tanh(raw)), atol=slack)
        np.testing.assert_allclose(flow.losses, (1 - flow.beta[:, 0]) ** 2 / 2, atol=1e-14)


@BOTH
def test_independent_coordinates_cross_when_their_integrals_say(follow):
    """t = integral of dbeta / (sqrt((u^2 - v^2)^2 + 4 beta^2) g(beta)), for three data sets at three scales."""
    a = np.array([[1.0, 0.3, 2.0, 0.7], [0.5, 1.5, 0.8, 1.0], [1.0, 1.0, 2.5, 0.6]])
    b = np.array([[1.0, -2.0, 0.4, -0.5], [-1.0, 0.7, 1.2, 0.6], [0.5, -0.6, -1.0, 0.8]])
    digits, weights = [1, 6, 40], np.random.default_rng(0).standard_normal((3, 2, 4))
    losses = [Separate(jnp.asarray(row), jnp.asarray(to)) for row, to in zip(a, b, strict=True)]
    starts = [DiagonalInit(u, v, -d * LOG10) for (u, v), d in zip(weights, digits, strict=True)]
    flows = follow(losses, starts, until=8.0, tolerance=1e-6, level=0.3)
    for n, flow in enumerate(flows):
        u, v = weights[n]
        rising = [c for c in flow.crossings if c.rising]
        assert {(c.index, c.sign) for c in rising} == {(i, int(np.sign(b[n, i]))) for i in range(4)}
        for c in rising:
            scale = np.exp(-2 * digits[n] * LOG10)
            half_gap = scale * abs(u[c.index] ** 2 - v[c.index] ** 2) / 2

            def pace(x, i=c.index, half_gap=half_gap, n=n):  # beta = half_gap sinh(2x), dx/dt = g
                return 1 / (a[n, i] * (b[n, i] - half_gap * np.sinh(2 * x)))

            ends = np.arcsinh(np.array([scale * u[c.index] * v[c.index], c.sign * 0.3]) / half_gap) / 2
            corner = ends[1] - np.sign(ends[1]) * 5
            exact = sum(quad(pace, *pair, epsabs=0, epsrel=1e-12)[0] for pair in ((ends[0], corner), (corner, ends[1])))
            np.testing.assert_allclose(c.time * digits[n] * LOG10, exact, rtol=tolerances.FLOW_STAGE_TIME * 1e-6)


@BOTH
def test_a_coordinate_returns_with_the_other_sign(follow):
    features, teacher = np.array(problems.RETURNING_FEATURES), np.array(problems.RETURNING_TEACHER)
    u, v = np.random.default_rng(0).standard_normal((2, 3))
    starts = [DiagonalInit(u, v, -digits * LOG10) for digits in (32, 1000, 4096)]
    loss = diagonal_linear_network(features, features @ teacher)
    flows = follow(loss, starts, until=60.0, tolerance=1e-6, level=0.05, record=np.array([15.0, 60.0]))
    for flow in flows:
        assert [(c.rising, c.sign) for c in flow.crossings if c.index == 0] == [(True, 1), (False, 1), (True, -1)]
        np.testing.assert_allclose(flow(np.array([15.0]))[0], problems.RETURNING_LAST_SADDLE, atol=1e-9)
        np.testing.assert_allclose(flow.beta[-1], teacher, atol=1e-9)
