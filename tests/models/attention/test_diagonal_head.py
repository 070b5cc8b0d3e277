"""Diagonal attention head: derivatives by blocks of samples, and its own Hessian; conventions of the task."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.models import DiagonalNetwork, attention_head, attention_teacher_task

SIZES = [(7, 3, 4), (1, 1, 2), (700, 3, 5)]  # 700 samples of 3 x 5 need two blocks, the last one padded


def _generic(network):
    return DiagonalNetwork(h=network.h, inputs=network.inputs, targets=network.targets, loss=network.loss)


@pytest.mark.parametrize(("samples", "tokens", "dim"), SIZES)
def test_derivatives_by_blocks_are_those_of_the_generic_network(samples, tokens, dim):
    task = attention_teacher_task(3, samples=samples, tokens=tokens, dim=dim)
    slow = _generic(task.network)
    beta = jnp.asarray(np.random.default_rng(0).standard_normal(2 * dim)) * 0.5
    everything = eqx.filter_jit(lambda loss, b: (loss(b), *loss.value_and_gradient(b), loss.hessian(b)))
    loss, value, gradient, hessian = everything(task.network, beta)
    expected_loss, expected_value, expected_gradient, expected_hessian = everything(slow, beta)
    np.testing.assert_allclose([loss, value], [expected_loss, expected_value], rtol=1e-13)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=1e-14)
    np.testing.assert_allclose(hessian, expected_hessian, rtol=0, atol=1e-13)
    assert float(jnp.abs(gradient).max()) > 1e-3
    assert float(value) > 1e-3


def test_hessian_is_the_finite_difference_of_the_gradient():
    network = attention_teacher_task(5, samples=30, tokens=4, dim=3).network
    beta = jnp.asarray(np.random.default_rng(1).standard_normal(6))
    gradient = jax.jit(jax.vmap(lambda b: network.value_and_gradient(b)[1]))
    steps = 1e-5 * jnp.eye(6)
    differences = (gradient(beta[None] + steps) - gradient(beta[None] - steps)) / 2e-5
    np.testing.assert_allclose(network.hessian(beta), differences, atol=1e-8)


def test_head_is_equation_1_with_full_matrices():
    rng = np.random.default_rng(2)
    x, (k, q, v, o) = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    scores = x @ np.diag(k) @ np.diag(q).T @ x.T
    rows = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    expected = rows @ x @ np.diag(v) @ np.diag(o).T
    got = attention_head(jnp.asarray(x), jnp.asarray(np.concatenate([k * q, v * o])))
    np.testing.assert_allclose(got, expected, rtol=1e-13)


def test_task_draws_tokens_teacher_and_start_in_this_order():
    task = attention_teacher_task(1, samples=4, tokens=3, dim=2)
    rng = np.random.default_rng(1)
    np.testing.assert_array_equal(task.network.inputs, rng.standard_normal((4, 3, 2)))
    k, q, v, o = rng.standard_normal((4, 2))
    np.testing.assert_array_equal(task.teacher, np.concatenate([k * q, v * o]))
    k, q, v, o = rng.standard_normal((4, 2))
    np.testing.assert_array_equal(task.u0, np.concatenate([k, v]))
    np.testing.assert_array_equal(task.v0, np.concatenate([q, o]))


def test_teacher_is_a_minimum_with_zero_loss():
    task = attention_teacher_task(2, samples=50, tokens=4, dim=3)
    value, gradient = task.network.value_and_gradient(jnp.asarray(task.teacher))
    assert float(value) < 1e-30
    assert float(jnp.abs(gradient).max()) < 1e-15
    assert np.linalg.eigvalsh(task.network.hessian(jnp.asarray(task.teacher))).min() > 1e-3
