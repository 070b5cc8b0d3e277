"""Parts of the explicit steps of many flows."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, gradient_flow, gradient_flow_batched
from saddlescope.flow.diagonal import batched_chebyshev
from saddlescope.models import diagonal_linear_network


@pytest.mark.parametrize("digits", [0, 3, 32, 128, 200, 4096])
def test_both_products_from_one_exponential(digits):
    """e^(p + 2y) and e^(q - 2y) to rounding, but for the smaller of two whose product is less than 1e-308."""
    p, q = -2.3 * digits - 0.3, -2.3 * digits + 0.9
    y = np.concatenate([np.linspace(-1, 1, 9) * 1.2 * digits, [-1.0, 0.0, 0.1, 1.0]])
    mirror = batched_chebyshev._Mirror(
        p=jnp.full((1, 13), p),
        q=jnp.full((1, 13), q),
        product=jnp.full((1, 13), np.exp(p + q)),
        low=jnp.full((1, 13), -jnp.inf),
        high=jnp.full((1, 13), jnp.inf),
        rate=jnp.ones(1),
        curvature=jnp.ones(1),
        direction=jnp.ones((1, 13)),
    )
    found = batched_chebyshev._products(mirror, jnp.asarray(y)[None])
    for values, exponents in zip(found, (p + 2 * y, q - 2 * y), strict=True):
        usual = exponents < batched_chebyshev.LARGEST_EXPONENT
        exact = [float(mpmath.exp(each)) for each in exponents[usual]]
        np.testing.assert_allclose(np.asarray(values)[0][usual], exact, rtol=1e-12, atol=1e-153)
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize("samples", [3, 8])
def test_fewer_samples_than_half_the_coordinates(samples):
    """Gradients by products with the data, or by the quadratic form: the flows are those of `gradient_flow`."""
    rng = np.random.default_rng(5)
    losses, starts = [], []
    for _ in range(3):
        features, u, v = rng.standard_normal((samples, 8)), *rng.standard_normal((2, 8))
        losses.append(diagonal_linear_network(features, features[:, :2] @ np.array([1.0, -2.0])))
        starts.append(DiagonalInit(u, v, -40.0))
    settings = {"until": 5.0, "level": 0.05, "record": np.linspace(0, 5, 21)}
    flows = gradient_flow_batched(losses, starts, tolerance=1e-5, **settings)
    for flow, loss, start in zip(flows, losses, starts, strict=True):
        exact = gradient_flow(loss, start, tolerance=1e-8, **settings)
        kinds = [(c.index, c.rising, c.sign) for c in flow.crossings]
        assert kinds == [(c.index, c.rising, c.sign) for c in exact.crossings]
        np.testing.assert_allclose([c.time for c in flow.crossings], [c.time for c in exact.crossings], rtol=1e-4)
        np.testing.assert_allclose(flow.values[-1], exact.values[-1], atol=1e-4)
