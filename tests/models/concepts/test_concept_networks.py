"""Networks that learn the structured identity mapping task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.models import (
    PopulationLoss,
    StructuredIdentityTask,
    half_squared_error,
    identity_loss,
    layered_map,
    layered_weights,
    random_rotation,
    squared_error,
    symmetric_factor,
    symmetric_map,
    symmetric_weights,
)


def _task(**changes):
    law = {"mu": (1.0, 1.5, 2.2), "sigma": (0.05, 0.4, 0.05), "samples_per_cluster": 7, "dim": 5}
    return StructuredIdentityTask(**law | changes)


def test_the_population_loss_is_the_mean_over_samples():
    x = _task(samples_per_cluster=50).draw(0)
    weights = layered_weights((5, 4, 3, 5), seed=0)
    moment = jnp.asarray(x.T @ x / len(x))
    for scale, cost in ((False, half_squared_error), (True, squared_error)):
        exact = PopulationLoss(moment, scale)
        np.testing.assert_allclose(identity_loss(x, cost=cost)(weights), exact.layered(weights), rtol=1e-12)
        W = layered_map(weights)
        np.testing.assert_allclose(identity_loss(x, cost=cost)((W,)), exact(W), rtol=1e-12)
        U = symmetric_weights(5, 2, seed=1, log_scale=np.log(0.6))
        np.testing.assert_allclose(identity_loss(x, cost=cost)((U.T, U)), exact.symmetric(U), rtol=1e-12)
    error = np.asarray(W) - np.eye(5)
    by_hand = sum(float(np.sum((error @ sample) ** 2)) for sample in x)
    np.testing.assert_allclose(PopulationLoss(moment)(W), by_hand / (2 * len(x)), rtol=1e-12)
    np.testing.assert_allclose(PopulationLoss(moment, True)(W), by_hand / (5 * len(x)), rtol=1e-12)


def test_the_gradient_flow_of_the_symmetric_network():
    task = _task(rotation=random_rotation(5, seed=0))
    A, U = task.second_moment, np.asarray(symmetric_weights(5, 3, seed=0, log_scale=np.log(0.7)))
    E = U @ U.T - np.eye(5)
    gradient = jax.grad(PopulationLoss(A).symmetric)(jnp.asarray(U))
    np.testing.assert_allclose(-gradient, -(A @ E + E @ A) @ U, rtol=1e-11, atol=1e-13)


def test_a_relu_network_is_another():
    x = _task().draw(0)
    weights = layered_weights((5, 6, 5), seed=0)
    active = np.maximum(np.asarray(weights[0]) @ x.T, 0)
    error = np.asarray(weights[1]) @ active - x.T
    np.testing.assert_allclose(identity_loss(x, relu=True)(weights), np.sum(error**2) / (2 * len(x)), rtol=1e-12)


def test_random_starts():
    normal, uniform = (
        symmetric_weights(4, 3, seed=0, log_scale=np.log(0.2), law=law, num_starts=5000)
        for law in ("normal", "uniform")
    )
    assert normal.shape == uniform.shape == (5000, 4, 3)
    np.testing.assert_allclose([normal.mean(), normal.std()], [0, 0.2], atol=0.004)
    np.testing.assert_allclose([uniform.mean(), uniform.min(), uniform.max()], [0.1, 0, 0.2], atol=0.002)
    np.testing.assert_allclose(symmetric_map(normal)[7], normal[7] @ normal[7].T, rtol=1e-14)


@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_a_factor_gives_the_map_back(width):
    sizes = np.array([1.0, 1e-8, 3.0, 1e-20])
    U = sizes[:, None] * np.asarray(symmetric_weights(4, width, seed=2, log_scale=0.0))
    W = U @ U.T
    found = symmetric_factor(W)
    np.testing.assert_allclose(found @ found.T / np.outer(sizes, sizes), W / np.outer(sizes, sizes), atol=1e-14)
    assert np.sum(np.any(found != 0, axis=0)) == min(width, 4)


@pytest.mark.slow
def test_no_minimum_of_the_symmetric_network_is_flatter_than_the_bound():
    """Check the Hessian at random minima of three widths: W = I for two, the leading projection for a narrow one."""
    A = np.asarray(StructuredIdentityTask((1.0, 2.0, 1.5), (0.4, 0.3, 0.5), 40, 3).second_moment)
    values, vectors = np.linalg.eigh(A)
    rng = np.random.default_rng(1)
    W = jnp.eye(3)
    for mean, unit in ((False, 1.0), (True, 2 / 3)):
        loss = PopulationLoss(A, mean)
        for width in (5, 3, 1):
            U = jnp.asarray(vectors[:, -width:] @ np.linalg.qr(rng.standard_normal((width, width)))[0][: min(width, 3)])
            np.testing.assert_allclose(jax.grad(loss.symmetric)(U), 0, atol=1e-12)
            hessian = jax.hessian(loss.symmetric)(U).reshape(U.size, U.size)
            assert float(np.linalg.eigvalsh(hessian)[-1]) >= 4 * unit * values[-1] * (1 - 1e-9)
        hessian = jax.hessian(loss)(W).reshape(9, 9)
        np.testing.assert_allclose(loss.largest_learning_rate(W) * np.linalg.eigvalsh(hessian)[-1], 2, rtol=1e-12)
