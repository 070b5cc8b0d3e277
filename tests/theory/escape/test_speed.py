"""The speed of a network against the model of the same network, its scaling, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from saddlescope.models import layered_output, layered_weights
from saddlescope.theory.escape.speed import (
    escape_speed,
    on_sphere,
)

X = np.random.default_rng(0).normal(size=(3, 7))
G = np.random.default_rng(1).normal(size=(2, 7))


@pytest.mark.parametrize("widths", [(3, 4, 2), (3, 5, 1, 2), (3, 2, 6, 4, 2)])
def test_it_is_minus_the_trace_of_the_models_output(widths):
    weights = layered_weights(widths, seed=len(widths))
    expected = -np.trace(G.T @ np.asarray(layered_output(weights, jnp.asarray(X.T))).T)
    assert_allclose(escape_speed(weights, X.T, G.T), expected, rtol=1e-13)


def test_the_sphere_scales_the_speed_by_the_degree():
    weights = layered_weights((3, 4, 5, 2), seed=4)
    scaled = on_sphere(weights)
    norm = sum(np.sum(np.asarray(w) ** 2) for w in weights)
    assert_allclose(sum(np.sum(w**2) for w in scaled), 3.0, rtol=1e-14)
    assert_allclose(escape_speed(scaled, X.T, G.T), escape_speed(weights, X.T, G.T) * (3 / norm) ** 1.5, rtol=1e-13)
    assert_allclose(on_sphere([1e-300 * np.asarray(w) for w in weights])[1], scaled[1], rtol=1e-13)
