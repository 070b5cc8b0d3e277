"""Compiled losses: columns of the Hessian, however many are asked for at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.loss.compiled import CompiledLoss
from saddlescope.models import attention_teacher_task
from saddlescope.numerics.tree_layout import TreeLayout


def _coupled(x):
    return jnp.sum(jnp.sin(x) * jnp.roll(x, 1) ** 2) + jnp.prod(1 + x[:3])


@pytest.mark.parametrize("count", [1, 4, 5, 12])
@pytest.mark.parametrize("own", [False, True])
def test_columns_of_the_hessian_are_those_asked_for_in_their_order(count, own):
    task = attention_teacher_task(5, samples=6, tokens=3, dim=6)
    loss = task.network if own else _coupled
    point = np.random.default_rng(1).standard_normal(12)
    columns = np.random.default_rng(count).permutation(12)[:count]
    compiled = CompiledLoss(loss, TreeLayout.of(point))
    compiled.exponent = 3
    exact = np.asarray(jax.hessian(loss)(jnp.asarray(point)))[:, columns] / 8
    np.testing.assert_allclose(compiled.hessian_columns(point, columns), exact, atol=1e-13)
    assert len(np.unique(exact.round(12), axis=1).T) == count  # no column stands for another one
    assert (compiled.evaluations.hessians, compiled.evaluations.columns) == (1, count)


def test_columns_of_a_pytree_s_hessian_count_its_entries_in_their_order():
    tree = {"a": np.array([0.3, -1.0]), "b": np.array([[0.7], [2.0]])}
    layout = TreeLayout.of(tree)
    point = np.array([0.3, -1.0, 0.7, 2.0])
    compiled = CompiledLoss(lambda at: _coupled(jnp.concatenate([at["a"], at["b"][:, 0]])), layout)
    exact = np.asarray(jax.hessian(_coupled)(jnp.asarray(point)))
    np.testing.assert_allclose(compiled.hessian_columns(point, np.array([3, 1])), exact[:, [3, 1]], atol=1e-13)
