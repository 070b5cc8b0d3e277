"""The bounds that hold from any start, against gradient flow."""

import numpy as np
import pytest

from references import symmetric_network_flow
from saddlescope.theory.concepts import initial_growth, map_ceiling

TIMES = np.linspace(0.0, 6.0, 61)


def _flow(a, U):
    path = symmetric_network_flow(a, U, TIMES)
    return path @ path.swapaxes(1, 2)


@pytest.mark.parametrize("size", [1e-6, 1e-2, 0.3, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_they_hold(size, seed):
    rng = np.random.default_rng(seed)
    a, U = rng.uniform(0, 1.5, 4), size * rng.standard_normal((4, 1 + seed))
    a[0] = 0.0 if seed else a[0]
    W = _flow(a, U)
    assert np.all(np.abs(W) <= map_ceiling(a, W[0], TIMES) * (1 + 1e-9))
    growth = initial_growth(a, W[0], TIMES)
    assert np.all(np.abs(W - growth.value) <= growth.error * (1 + 1e-9) + 1e-11 * np.abs(growth.value))


def test_the_ceiling_is_reached_on_a_diagonal():
    a, sizes = np.array([0.2, 1.0, 0.0]), np.array([0.1, 0.3, 0.5])
    W = _flow(a, np.diag(sizes))
    np.testing.assert_allclose(np.einsum("tkk->tk", map_ceiling(a, W[0], TIMES)), np.einsum("tkk->tk", W), atol=1e-10)


def test_the_growth_is_the_linear_one_to_second_order():
    """For a start of scale e the error is e^2 at first order: the bound is at most a factor above it."""
    a = np.array([0.5, 1.0])
    U = np.array([[1.0, 0.2], [0.4, 1.0]])
    times = np.array([0.5])
    for scale in (1e-2, 1e-4):
        W0 = scale * U @ U.T
        path = symmetric_network_flow(a, np.sqrt(scale) * U, times)
        growth = initial_growth(a, W0, times)
        off = np.abs(path @ path.swapaxes(1, 2) - growth.value)
        assert np.all(off <= growth.error)
        assert np.all(off >= growth.error / 10)


def test_no_value_is_lost_at_long_times():
    W0 = np.array([[1e-9, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1e-9]])
    growth = initial_growth([1.0, 1.0, 0.0], W0, [1e4])
    np.testing.assert_allclose(growth.value[0], [[np.inf, 0, 0], [0, 0, 0], [0, 0, 1e-9]], rtol=1e-14)
    assert not np.any(np.isnan(growth.error))
    ceiling = map_ceiling([1.0, 1.0, 0.0], W0, [1e4])[0]
    np.testing.assert_allclose(ceiling, np.outer(*2 * [[1, 0, np.sqrt(1e-9)]]), rtol=1e-14)
