"""Attention head with full weights: derivatives by blocks of samples; conventions of the task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.models import FullAttention, attention_teacher_task, full_attention_head, full_attention_teacher_task


def products(rng, dim):
    return tuple(0.5 * jnp.asarray(rng.standard_normal((dim, dim))) for _ in range(2))


@pytest.mark.parametrize(("samples", "tokens", "dim"), [(7, 3, 4), (1, 1, 2), (1500, 3, 5)])  # the last: three blocks
def test_derivatives_by_blocks_are_those_of_all_samples_at_once(samples, tokens, dim):
    network = full_attention_teacher_task(3, samples=samples, tokens=tokens, dim=dim).network

    def slow(at):
        outputs = jax.vmap(full_attention_head, in_axes=(0, None, None))(network.inputs, *at)
        return jnp.mean((outputs - network.targets) ** 2)

    at = products(np.random.default_rng(0), dim)
    expected, slopes = jax.jit(jax.value_and_grad(slow))(at)
    value, got = network.value_and_gradient(at)
    np.testing.assert_allclose([value, network(at)], [expected, expected], rtol=1e-13)
    for mine, theirs in zip(got, slopes, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-13)
    assert max(float(jnp.abs(slope).max()) for slope in slopes) > 1e-3


def test_head_is_equation_1():
    rng = np.random.default_rng(2)
    x, k, q, v, o = (rng.standard_normal(shape) for shape in ((5, 3), *[(3, 2)] * 4))
    scores = x @ k @ q.T @ x.T
    rows = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    got = full_attention_head(*map(jnp.asarray, (x, k @ q.T, v @ o.T)))
    np.testing.assert_allclose(got, rows @ x @ v @ o.T, rtol=1e-13)


def test_diagonal_products_give_the_diagonal_head():
    diagonal = attention_teacher_task(1, samples=20, tokens=4, dim=3).network
    full = FullAttention(inputs=diagonal.inputs, targets=diagonal.targets)
    beta = np.random.default_rng(0).standard_normal(6)
    np.testing.assert_allclose(full((np.diag(beta[:3]), np.diag(beta[3:]))), diagonal(jnp.asarray(beta)), rtol=1e-13)


def test_teacher_has_the_requested_rank_and_no_loss():
    task = full_attention_teacher_task(2, samples=30, tokens=4, dim=5, width=3, rank=2)
    assert [np.linalg.matrix_rank(product) for product in task.teacher] == [2, 2]
    assert {factor.shape for pair in task.pairs for factor in pair} == {(5, 3)}
    value, slopes = task.network.value_and_gradient(tuple(map(jnp.asarray, task.teacher)))
    assert float(value) < 1e-30
    assert max(float(jnp.abs(slope).max()) for slope in slopes) < 1e-14
