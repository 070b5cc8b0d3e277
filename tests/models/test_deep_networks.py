"""Deep networks without biases."""

import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.models import (
    LayeredLoss,
    cross_entropy,
    half_squared_error,
    layered_output,
    layered_weights,
    preactivations,
)

WIDTHS = (3, 5, 4, 2)


def _inputs(samples=6, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal((3, samples)))


def _loss(relu, seed=1):
    rng = np.random.default_rng(seed)
    data = (jnp.asarray(rng.standard_normal((n, d))) for n, d in ((6, 3), (6, 2)))
    return LayeredLoss(*data, relu=relu)


def test_the_output_is_that_of_a_loop_over_neurons():
    weights, x = layered_weights(WIDTHS, seed=0), np.asarray(_inputs())
    active = x
    for layer, weight in enumerate(np.asarray(w) for w in weights):
        z = np.stack([sum(row[i] * active[i] for i in range(len(row))) for row in weight])
        np.testing.assert_allclose(preactivations(weights, x.T)[layer], z.T, rtol=1e-12, atol=1e-14)
        active = np.where(z > 0, z, 0.0)
    np.testing.assert_allclose(layered_output(weights, x.T), z.T, rtol=1e-12, atol=1e-14)


def test_a_linear_network_is_the_product_of_its_weights():
    weights, x = layered_weights(WIDTHS, seed=0), _inputs()
    w1, w2, w3 = (np.asarray(w) for w in weights)
    np.testing.assert_allclose(layered_output(weights, x.T, relu=False), (w3 @ w2 @ w1 @ np.asarray(x)).T, rtol=1e-12)


@pytest.mark.parametrize("relu", [True, False])
def test_the_output_is_homogeneous_of_the_depth(relu):
    weights, x = layered_weights(WIDTHS, seed=3), _inputs()
    scaled = tuple(0.3 * w for w in weights)
    once = layered_output(weights, x.T, relu=relu)
    np.testing.assert_allclose(layered_output(scaled, x.T, relu=relu), 0.3**3 * once, rtol=1e-12)


def test_gradients_at_the_origin():
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.standard_normal((6, 3))), jnp.asarray(rng.standard_normal((6, 2)))
    np.testing.assert_allclose(LayeredLoss(x, y).gradient_at_origin(), -y / 6, rtol=1e-14)
    labels = jnp.eye(2)[rng.integers(0, 2, 6)]
    found = LayeredLoss(x, labels, cross_entropy).gradient_at_origin()
    np.testing.assert_allclose(found, (0.5 - labels) / 6, atol=1e-16)


def test_costs():
    rng = np.random.default_rng(2)
    outputs, targets = jnp.asarray(rng.standard_normal((4, 2))), jnp.asarray(np.eye(2)[[0, 1, 1, 0]])
    np.testing.assert_allclose(half_squared_error(outputs, targets), np.sum((outputs - targets) ** 2) / 8, rtol=1e-14)
    p = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    np.testing.assert_allclose(cross_entropy(outputs, targets), -np.mean(np.log(p[range(4), [0, 1, 1, 0]])), rtol=1e-14)


def test_the_mean_over_minibatches_is_the_full_loss():
    loss, weights = _loss(relu=True), layered_weights(WIDTHS, seed=5)
    parts = [loss.batch(jnp.array(part)) for part in ([0, 4], [1, 5], [2, 3])]
    np.testing.assert_allclose(np.mean([part(weights) for part in parts]), loss(weights), rtol=1e-14)
    assert loss.samples == 6
    assert parts[0].samples == 2


def test_initial_weights():
    many = layered_weights(WIDTHS, seed=0, deviation=0.1, num_starts=500)
    assert [w.shape for w in many] == [(500, 5, 3), (500, 4, 5), (500, 2, 4)]
    np.testing.assert_allclose([w.std() for w in many], 0.1, rtol=0.05)
    assert layered_weights(WIDTHS, seed=0, dtype=jnp.float32)[0].dtype == jnp.float32
