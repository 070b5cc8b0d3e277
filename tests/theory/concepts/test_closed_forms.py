"""Closed forms of the symmetric two-layer network against gradient flow and against many digits."""

import mpmath
import numpy as np
import pytest

from references import symmetric_network_flow
from saddlescope.theory.concepts import proportional_map

TIMES = np.array([0.0, 0.3, 1.0, 2.0, 5.0, 12.0])


def _weights(shape, seed, size):
    return size * np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(("width", "size"), [(4, 0.3), (2, 0.9), (6, 1e-6)])
def test_equal_strengths(width, size):
    U0 = _weights((4, width), width, size)
    U = symmetric_network_flow(np.full(4, 0.7), U0, TIMES)
    np.testing.assert_allclose(proportional_map(0.7, U0 @ U0.T, TIMES), U @ U.swapaxes(1, 2), atol=1e-11)


def test_equal_strengths_against_forty_digits():
    U0 = _weights((3, 3), 0, 0.2)
    W0 = U0 @ U0.T
    with mpmath.workdps(40):
        W = mpmath.matrix(W0.tolist())
        grown = mpmath.exp(mpmath.mpf(4) * mpmath.mpf(0.7) * 2)
        exact = grown * W * (mpmath.eye(3) + (grown - 1) * W) ** -1
    np.testing.assert_allclose(proportional_map(0.7, W0, [2.0])[0], np.array(exact.tolist(), float), atol=1e-14)


def test_time_symmetry():
    u = np.array([0.3, 0.2, -0.1])
    there = proportional_map(0.7, np.outer(u, u) + np.eye(3) / 5, [1.3])[0]
    np.testing.assert_allclose(proportional_map(0.7, there, [-1.3])[0], np.outer(u, u) + np.eye(3) / 5, rtol=1e-11)


def test_no_value_is_lost_at_long_times():
    np.testing.assert_allclose(proportional_map(0.7, np.eye(2) * 1e-200, [1e4])[0], np.eye(2), atol=1e-12)
