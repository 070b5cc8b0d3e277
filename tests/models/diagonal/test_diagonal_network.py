"""Networks with diagonal weights in general, and diagonal linear networks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.models import DiagonalNetwork, diagonal_linear_network, squared_error


def _quadratic(seed=0, samples=7, p=4):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((samples, p)), rng.standard_normal(samples), jnp.asarray(rng.standard_normal(p))


def test_diagonal_linear_network_is_the_mean_squared_error_of_a_linear_model():
    x, y, beta = _quadratic()
    network = diagonal_linear_network(x, y)
    residual = x @ np.asarray(beta) - y
    value, gradient = eqx.filter_jit(DiagonalNetwork.value_and_gradient)(network, beta)
    np.testing.assert_allclose([network(beta), value], np.mean(residual**2), rtol=1e-14)
    np.testing.assert_allclose(gradient, 2 * x.T @ residual / 7, rtol=1e-13)
    np.testing.assert_allclose(network.hessian(beta), 2 * x.T @ x / 7, rtol=1e-13)
    automatic = eqx.filter_jit(DiagonalNetwork.hessian_columns)(network, beta, jnp.array([3, 0]))
    np.testing.assert_allclose(automatic, network.hessian(beta)[:, jnp.array([3, 0])], atol=1e-13)


def test_any_output_and_loss_can_be_given():
    x, y, beta = _quadratic(1)
    network = DiagonalNetwork(
        h=lambda one, b: jnp.tanh(one * b),
        inputs=jnp.asarray(x),
        targets=jnp.asarray(y),
        loss=lambda target, output: jnp.sum(jnp.cos(output)) * target,
    )
    np.testing.assert_allclose(network(beta), np.mean(np.cos(np.tanh(x * np.asarray(beta))).sum(1) * y), rtol=1e-13)


def test_squared_error_has_no_factor_one_half():
    assert float(squared_error(jnp.array([0.0, 0.0]), jnp.array([1.0, 2.0]))) == 2.5


@pytest.mark.parametrize("samples", [1, 7, 600])
def test_the_hessian_by_blocks_is_that_of_the_full_loss(samples):
    rng = np.random.default_rng(samples)
    inputs, targets = jnp.asarray(rng.standard_normal((samples, 3))), jnp.asarray(rng.standard_normal(samples))
    network = DiagonalNetwork(lambda x, beta: jnp.tanh(x @ beta) * beta[0], inputs, targets)
    beta = jnp.asarray(rng.standard_normal(3))
    np.testing.assert_allclose(network.hessian(beta), jax.hessian(lambda b: network(b))(beta), rtol=1e-12, atol=1e-13)


def test_a_batch_is_the_network_on_these_samples():
    x, y, beta = _quadratic(2)
    network, order = diagonal_linear_network(x, y), jnp.array([5, 0, 2])
    part = eqx.filter_jit(lambda network, indices: network.batch(indices).value_and_gradient(beta))(network, order)
    subset = diagonal_linear_network(x[order], y[order]).value_and_gradient(beta)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13), part, subset)
    assert (network.samples, network.batch(order).samples) == (7, 3)
