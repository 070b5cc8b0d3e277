"""The mirror coordinates are the weights, exactly, at any initial scale."""

import numpy as np
import pytest

from saddlescope.flow import DiagonalInit

U = np.array([1.0, -1.0, 0.3, -0.3, 2.0, 2.0, 0.0, -1e-9, 1.5, 0.0])
V = np.array([0.5, 0.5, -0.7, -0.7, 2.0, -2.0, 1.0, 1.0, 0.0, 0.0])
LOG_SCALE = -2.0


def _coordinates():
    return DiagonalInit(U, V, LOG_SCALE).flow_coordinates()


def test_the_origin_is_the_scaled_start_with_its_signs():
    u, v = _coordinates().parameters(np.zeros(10))
    np.testing.assert_allclose(u, np.exp(LOG_SCALE) * U, rtol=1e-13)
    np.testing.assert_allclose(v, np.exp(LOG_SCALE) * V, rtol=1e-13)


def test_weights_solve_the_linear_system_of_equation_4():
    """For a constant g, u' = g v and v' = g u: hyperbolic rotation of (u, v) by y = g t."""
    y = np.random.default_rng(0).standard_normal(10)
    u, v = _coordinates().parameters(y)
    np.testing.assert_allclose(u, np.exp(LOG_SCALE) * (U * np.cosh(y) + V * np.sinh(y)), rtol=1e-12)
    np.testing.assert_allclose(v, np.exp(LOG_SCALE) * (U * np.sinh(y) + V * np.cosh(y)), rtol=1e-12)


def test_the_point_is_the_product_and_its_derivative_the_sum_of_squares():
    coordinates, y = _coordinates(), np.random.default_rng(1).standard_normal(10)
    u, v = coordinates.parameters(y)
    np.testing.assert_allclose(coordinates.point(y), u * v, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(coordinates.metric(y), u**2 + v**2, rtol=1e-13)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(coordinates.log_abs(y), np.log(np.abs(u * v)), rtol=1e-12)
    difference = (coordinates.point(y + 1e-6) - coordinates.point(y - 1e-6)) / 2e-6
    np.testing.assert_allclose(coordinates.metric(y), difference, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("level", [1e-3, 0.4, 30.0])
def test_the_band_ends_where_the_product_has_the_level(level):
    coordinates = _coordinates()
    low, high = coordinates.band(level)
    with np.errstate(over="ignore"):
        ends = (
            coordinates.point(np.where(np.isfinite(low), low, 0)),
            coordinates.point(np.where(np.isfinite(high), high, 0)),
        )
    np.testing.assert_allclose(ends[0][np.isfinite(low)], -level, rtol=1e-12)
    np.testing.assert_allclose(ends[1][np.isfinite(high)], level, rtol=1e-12)
    np.testing.assert_array_equal(np.isfinite(low), U != V)  # u = v: the product stays positive
    np.testing.assert_array_equal(np.isfinite(high), U != -V)


def test_logarithms_go_where_float64_cannot():
    coordinates = DiagonalInit(np.array([1.0, -2.0]), np.array([0.5, 3.0]), -1e6).flow_coordinates()
    np.testing.assert_allclose(coordinates.log_abs(np.zeros(2)) + 2e6, np.log([0.5, 6.0]), atol=1e-9)


def test_exponents_far_beyond_a_plateau_stay_finite_and_ordered():
    coordinates = DiagonalInit(np.ones(3), np.zeros(3), -100.0).flow_coordinates()
    points = coordinates.point(np.array([150.0, 1e3, 1e5]))
    assert np.all(np.isfinite(points))
    assert np.all(np.diff(points) > 0)
    assert coordinates.diverged(np.array([0.0, 0.0, 200.0]))
    assert not coordinates.diverged(np.array([0.0, 0.0, 100.0]))
