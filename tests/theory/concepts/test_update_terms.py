"""Equation 4.3 against automatic differentiation, and the law of the determinant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from references import symmetric_network_flow
from saddlescope.models import PopulationLoss, StructuredIdentityTask, symmetric_map
from saddlescope.theory.concepts import update_terms


def _weights(dim, width, seed, size=0.6):
    return size * np.random.default_rng(seed).standard_normal((dim, width))


def _velocity(a, U):
    """DW/dt of gradient flow in U, by automatic differentiation."""
    U = jnp.asarray(U)
    descent = -jax.grad(PopulationLoss(jnp.diag(jnp.asarray(a))).symmetric)(U)
    return jax.jvp(symmetric_map, (U,), (descent,))[1]


@pytest.mark.parametrize(("dim", "width"), [(1, 1), (2, 2), (3, 1), (4, 4), (5, 8)])
def test_growth_less_suppression_less_noise_is_half_the_velocity(dim, width):
    a, U = np.random.default_rng(dim).uniform(0.0, 2.0, dim), _weights(dim, width, dim)
    a[-1] = 0.0 if dim > 2 else a[-1]
    terms = update_terms(a, U @ U.T)
    np.testing.assert_allclose(2 * (terms.growth - terms.suppression - terms.noise), _velocity(a, U), atol=1e-12)
    np.testing.assert_array_equal(terms.velocity, 2 * (terms.growth - terms.suppression - terms.noise))


def test_each_term_entry_by_entry():
    a, U = np.array([0.3, 1.1, 1.9]), _weights(3, 3, 7)
    w = U @ U.T
    terms = update_terms(a, w)
    for i in range(3):
        for j in range(3):
            suppression = w[i, j] * (w[i, i] * (3 * a[i] + a[j]) + (i != j) * w[j, j] * (3 * a[j] + a[i])) / 2
            noise = sum(w[k, i] * w[k, j] * (a[i] + a[j] + 2 * a[k]) / 2 for k in range(3) if k not in (i, j))
            np.testing.assert_allclose(terms.growth[i, j], w[i, j] * (a[i] + a[j]), rtol=1e-14)
            np.testing.assert_allclose(terms.suppression[i, j], suppression, rtol=1e-13)
            np.testing.assert_allclose(terms.noise[i, j], noise, rtol=1e-13, atol=1e-15)


def test_the_logarithm_of_the_determinant():
    """D/dt log det W = 4 tr(A (I - W)): at a point by automatic differentiation, and over a whole run."""
    a = StructuredIdentityTask((1.0, 1.5, 2.2), (0.05,) * 3, 10, 3).strengths
    start = _weights(3, 3, 1)
    _, along = jax.jvp(lambda W: jnp.linalg.slogdet(W)[1], (jnp.asarray(start @ start.T),), (_velocity(a, start),))
    np.testing.assert_allclose(along, 4 * np.sum(a * (1 - np.diag(start @ start.T))), rtol=1e-12)

    nodes, weights = np.polynomial.legendre.leggauss(10)
    edges = np.linspace(0.0, 12.0, 121)
    times = (edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2).ravel()
    U = symmetric_network_flow(a, 0.1 * start, np.concatenate([[0.0], times, [12.0]]))
    rate = 4 * (a.sum() - np.einsum("p,tpq,tpq->t", a, U, U))[1:-1]
    passed = np.sum(rate.reshape(-1, 10) * weights * np.diff(edges)[:, None] / 2)
    ends = np.linalg.slogdet(U[[0, -1]])[1]
    np.testing.assert_allclose(2 * (ends[1] - ends[0]), passed, rtol=1e-10)
    np.testing.assert_allclose(U[-1] @ U[-1].T, np.eye(3), atol=1e-2)  # a start of full rank ends at the identity
