"""Closed forms of the symmetric two-layer network against gradient flow and against many digits."""

import mpmath
import numpy as np
import pytest

from references import symmetric_network_flow
from saddlescope._shared.errors import InputError
from saddlescope.theory.concepts import diagonal_map, proportional_map, rank_one_map, update_terms

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


def test_diagonal_starts():
    a, w = np.array([0.3, 0.8, 1.6, 0.0]), np.array([0.1, 0.0, 1.7, 0.4])
    U = symmetric_network_flow(a, np.diag(np.sqrt(w)), TIMES)
    found = diagonal_map(a, w, TIMES)
    np.testing.assert_allclose(found, np.einsum("tpq,tpq->tp", U, U), atol=1e-11)
    assert np.all(found[:, 1] == 0)
    np.testing.assert_array_equal(diagonal_map(a, w, [1e6])[0], [1, 0, 1, 0.4])


@pytest.mark.parametrize("size", [1e-3, 0.1, 0.5])
def test_rank_one_starts(size):
    a, u = np.array([0.3, 0.8, 1.6, 0.0]), _weights(4, 1, size)
    U = symmetric_network_flow(a, u[:, None], TIMES)[:, :, 0]
    np.testing.assert_allclose(rank_one_map(a, u, TIMES), U, atol=1e-12)


def test_rank_one_starts_above_norm_one():
    a, u = np.array([0.3, 0.8, 1.6]), np.array([0.9, -0.6, 0.7])
    assert 1 < u @ u < 2
    U = symmetric_network_flow(a, u[:, None], TIMES)[:, :, 0]
    np.testing.assert_allclose(rank_one_map(a, u, TIMES), U, atol=1e-12)


def test_rank_one_starts_against_a_taylor_series_of_thirty_digits():
    a, u = [0.25, 1.5], [0.3, 0.1]
    with mpmath.workdps(30):

        def velocity(_, v):
            square = v[0] ** 2 + v[1] ** 2
            energy = a[0] * v[0] ** 2 + a[1] * v[1] ** 2
            return [(2 - square) * a[k] * v[k] - energy * v[k] for k in range(2)]

        exact = mpmath.odefun(velocity, 0, [mpmath.mpf(x) for x in u])(mpmath.mpf(2))
        np.testing.assert_allclose(rank_one_map(a, u, [2.0])[0], [float(x) for x in exact], rtol=1e-13)


def test_the_velocity_at_rank_one_and_time_symmetry():
    a, u = np.array([0.3, 0.8, 1.6]), np.array([0.3, 0.2, -0.1])
    times = np.array([0.999, 1.001])
    before, after = (np.outer(v, v) for v in rank_one_map(a, u, times))
    at = rank_one_map(a, u, [1.0])[0]
    np.testing.assert_allclose((after - before) / 0.002, update_terms(a, np.outer(at, at)).velocity, rtol=1e-4)
    there = proportional_map(0.7, np.outer(u, u) + np.eye(3) / 5, [1.3])[0]
    np.testing.assert_allclose(proportional_map(0.7, there, [-1.3])[0], np.outer(u, u) + np.eye(3) / 5, rtol=1e-11)


def test_no_value_is_lost_at_long_times():
    a, u = np.array([0.3, 0.8, 1.6]), np.array([1e-100, -1e-100, 1e-120])
    v = rank_one_map(a, u, [0.0, 200.0, 1e4])
    np.testing.assert_allclose(v[0], u, rtol=1e-12)
    np.testing.assert_allclose(v[-1], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(proportional_map(0.7, np.eye(2) * 1e-200, [1e4])[0], np.eye(2), atol=1e-12)


def test_bad_input():
    with pytest.raises(InputError, match="start must be positive semidefinite"):
        proportional_map(1.0, [[1.0, 2.0], [2.0, 1.0]], TIMES)
    with pytest.raises(InputError, match="start must be symmetric"):
        proportional_map(1.0, [[1.0, 0.2], [0.0, 1.0]], TIMES)
    with pytest.raises(InputError, match="start must be 2 finite numbers of at least 0"):
        diagonal_map([1.0, 2.0], [-0.1, 1.0], TIMES)
    with pytest.raises(InputError, match="squares that sum to less than 2"):
        rank_one_map([1.0, 2.0], [1.0, 1.1], TIMES)
    with pytest.raises(InputError, match="times must be a list of finite numbers of at least 0"):
        rank_one_map([1.0, 2.0], [0.1, 0.1], [-1.0])
    with pytest.raises(InputError, match="times must be a list"):
        diagonal_map([1.0, 2.0], [0.1, 1.0], [np.inf])
