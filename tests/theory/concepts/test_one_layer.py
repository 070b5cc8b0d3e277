"""Theorem 4.1: the one-layer network in closed form."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.linalg import expm

from saddlescope.models import PopulationLoss, StructuredIdentityTask, random_rotation
from saddlescope.theory.concepts import one_layer_output

TIMES = np.array([0.0, 0.3, 1.0, 7.0])


def _problem(rotation=None):
    task = StructuredIdentityTask((1.0, 2.0), (0.05, 0.3), 10, 4, rotation=rotation)
    rng = np.random.default_rng(0)
    return task.second_moment, 0.4 * rng.standard_normal((4, 4)), rng.standard_normal(4)


@pytest.mark.parametrize("rotation", [None, random_rotation(4, seed=3)])
def test_it_is_the_matrix_exponential(rotation):
    A, W0, z = _problem(rotation)
    W = np.stack([np.eye(4) - (np.eye(4) - W0) @ expm(-A * t) for t in TIMES])
    output = one_layer_output(A, W0, z, TIMES)
    np.testing.assert_allclose(output.total, W @ z, atol=1e-13)
    np.testing.assert_allclose(output.noise, np.stack([W0 @ expm(-A * t) @ z for t in TIMES]), atol=1e-13)


def test_it_solves_gradient_flow():
    A, W0, z = _problem(random_rotation(4, seed=3))
    now, soon = one_layer_output(A, W0, z, [0.7, 0.7 + 1e-6]).total
    W = np.eye(4) - (np.eye(4) - W0) @ expm(-A * 0.7)
    np.testing.assert_allclose((soon - now) / 1e-6, -jax.grad(PopulationLoss(A))(jnp.asarray(W)) @ z, atol=1e-5)


def test_against_thirty_digits():
    a, W0, z = [1 / 3 + 1e-9, 1e-14, 0.0], np.arange(9.0).reshape(3, 3) / 10, [1.0, 1e8, 3.0]
    with mpmath.workdps(30):
        for k in range(3):
            growth = (1 - mpmath.exp(-mpmath.mpf(a[k]) * 5)) * mpmath.mpf(z[k])
            noise = sum(mpmath.exp(-mpmath.mpf(a[i]) * 5) * mpmath.mpf(W0[k, i]) * mpmath.mpf(z[i]) for i in range(3))
            found = one_layer_output(np.diag(a), W0, z, [5.0])
            np.testing.assert_allclose(found.growth[0, k], float(growth), rtol=1e-14)
            np.testing.assert_allclose(found.noise[0, k], float(noise), rtol=1e-14)


def test_the_printed_sum_leaves_out_directions_without_strength():
    A, W0, z = _problem()
    right, printed = one_layer_output(A, W0, z, TIMES), one_layer_output(A, W0, z, TIMES, printed=2)
    np.testing.assert_allclose(right.total - printed.total, np.tile(W0[:, 2:] @ z[2:], (4, 1)), atol=1e-14)
    z[2:] = 0  # as at the test points
    np.testing.assert_allclose(
        one_layer_output(A, W0, z, TIMES).total, one_layer_output(A, W0, z, TIMES, printed=2).total, atol=1e-15
    )


def _rises(a, W0):
    """Return True if the loss at the sum of all concepts rises anywhere."""
    times = np.linspace(0.0, 6.0 / min(a), 400)
    output = one_layer_output(np.diag(a), W0, np.ones(len(a)), times).total
    return bool(np.any(np.diff(np.sum((output - 1) ** 2, axis=1)) > 1e-12))


def test_the_loss_falls_monotonically_from_starts_within_the_norm():
    rng, a = np.random.default_rng(1), np.array([1.0, 0.1])
    most = np.sqrt(1 + np.sqrt(a.min() / a.max())) - 1  # the norm of docs/concepts.md
    for _ in range(200):
        W0 = rng.standard_normal((2, 2))
        assert not _rises(a, W0 * most / np.linalg.norm(W0, 2))
    # Within ten times it, some rise; with one concept none ever does.
    assert any(_rises(a, W0 * 10 * most) for W0 in rng.standard_normal((50, 2, 2)) / 2)
    assert not any(_rises(a[:1], W0) for W0 in rng.standard_normal((50, 1, 1)))


def test_a_start_that_is_right_at_the_test_point_gets_worse_first():
    x = np.array([1.0, 1.0])
    assert _rises(np.array([1.0, 0.1]), np.outer(x, x) / 2)
