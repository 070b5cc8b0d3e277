"""Transformer of Example 3.2: against a reference implementation with full matrices, by symmetries, at the origin."""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from saddlescope.models import (
    Coordinate,
    DiagonalNetwork,
    Transformer,
    TransformerNetwork,
    attention_head,
    attention_teacher_task,
    transformer_teacher_task,
)

TOKENS, DIM, HIDDEN = 4, 3, 5


def _transformer(seed=0, *, layers=2, heads=2, hidden: int | None = HIDDEN, residual=True):
    rng = np.random.default_rng(seed)
    W_A, W_B = (jnp.asarray(rng.standard_normal((layers, DIM, hidden))) if hidden else None for _ in range(2))
    return Transformer(layers=layers, heads=heads, dim=DIM, W_A=W_A, W_B=W_B, residual=residual)


def _attention(z, k, q, v, o):
    """Equation 1, head by head, with full matrices and loops over tokens."""
    W_K, W_Q, W_V, W_O = map(np.diag, (k, q, v, o))
    out = []
    for token in z:
        weights = np.exp(token @ W_K @ W_Q.T @ z.T)
        out.append(weights / weights.sum() @ z @ W_V @ W_O.T)
    return np.array(out)


def _reference(transformer, x, weights):
    """Example 3.2 as printed; `weights` has K, Q, V and O for each (layer, head)."""
    z = x
    for layer in range(transformer.layers):
        attended = sum(_attention(z, *weights[layer, head]) for head in range(transformer.heads))
        z = attended + (z if transformer.residual else 0)
        if transformer.W_A is not None:
            inner = z @ np.asarray(transformer.W_A[layer])
            inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
            z = inner @ np.asarray(transformer.W_B[layer]).T + (z if transformer.residual else 0)
    return z


@pytest.mark.parametrize(
    ("layers", "heads", "hidden", "residual"),
    [(1, 1, None, False), (1, 3, HIDDEN, True), (2, 1, None, True), (2, 2, HIDDEN, False), (3, 2, HIDDEN, True)],
)
def test_output_is_example_3_2_with_full_matrices(layers, heads, hidden, residual):
    transformer = _transformer(1, layers=layers, heads=heads, hidden=hidden, residual=residual)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((TOKENS, DIM))
    weights = {place: 0.7 * rng.standard_normal((4, DIM)) for place in product(range(layers), range(heads))}
    beta = np.full(transformer.size, np.nan)
    for place, (k, q, v, o) in weights.items():
        for entry in range(DIM):
            beta[transformer.index(Coordinate(*place, "KQ", entry))] = k[entry] * q[entry]
            beta[transformer.index(Coordinate(*place, "VO", entry))] = v[entry] * o[entry]
    got = jax.jit(lambda b: transformer(jnp.asarray(x), b))(jnp.asarray(beta))
    np.testing.assert_allclose(got, _reference(transformer, x, weights), rtol=1e-12, atol=1e-13)


def test_one_head_without_residual_and_feedforward_is_the_attention_head_to_the_last_bit():
    rng = np.random.default_rng(3)
    x, beta = jnp.asarray(rng.standard_normal((TOKENS, DIM))), jnp.asarray(rng.standard_normal(2 * DIM))
    single = _transformer(layers=1, heads=1, hidden=None, residual=False)
    np.testing.assert_array_equal(single(x, beta), attention_head(x, beta))


def test_permuting_the_heads_of_a_layer_changes_nothing_but_the_order_of_the_gradient():
    network = transformer_teacher_task(0, layers=2, heads=3, samples=6, tokens=TOKENS, dim=DIM, hidden=HIDDEN).network
    beta = np.random.default_rng(4).standard_normal(network.h.size)
    order = np.arange(network.h.size).reshape(2, 3, 2 * DIM)
    order[1] = order[1, [2, 0, 1]]
    order = order.ravel()
    value, gradient = network.value_and_gradient(jnp.asarray(beta))
    permuted_value, permuted_gradient = network.value_and_gradient(jnp.asarray(beta[order]))
    np.testing.assert_allclose(permuted_value, value, rtol=1e-13)
    np.testing.assert_allclose(permuted_gradient, np.asarray(gradient)[order], rtol=1e-11, atol=1e-13)
    layers_exchanged = np.roll(np.arange(network.h.size), network.h.size // 2)
    assert abs(network(jnp.asarray(beta[layers_exchanged])) - value) > 1e-3


@pytest.mark.parametrize("heads", [1, 2])
def test_at_the_origin_only_values_are_pushed_and_all_heads_of_a_layer_alike(heads):
    network = transformer_teacher_task(1, layers=2, heads=heads, samples=9, tokens=TOKENS, dim=DIM, hidden=HIDDEN)
    gradient = network.network.value_and_gradient(jnp.zeros(network.network.h.size))[1]
    keys, values = np.moveaxis(np.asarray(gradient).reshape(2, heads, 2, DIM), 2, 0)
    np.testing.assert_array_equal(keys, 0)
    assert np.abs(values).min() > 1e-6
    np.testing.assert_allclose(values, values[:, :1].repeat(heads, 1), rtol=1e-12)
    assert np.abs(values[0] / values[1] - 1).max() > 1e-2  # the feedforward layer between them distinguishes the layers


@pytest.mark.parametrize(("samples", "tokens"), [(7, 3), (450, 20)])  # the last one needs two blocks
def test_the_gradient_by_blocks_is_that_of_the_generic_network(samples, tokens):
    network = transformer_teacher_task(7, layers=2, heads=2, samples=samples, tokens=tokens, dim=2, hidden=3).network
    beta = jnp.asarray(np.random.default_rng(7).standard_normal(network.h.size))
    value, gradient = network.value_and_gradient(beta)
    whole = DiagonalNetwork(lambda x, b: network.h(x, b), network.inputs, network.targets)
    generic_value, generic = eqx.filter_jit(whole.value_and_gradient)(beta)
    np.testing.assert_allclose([value, network(beta)], [generic_value] * 2, rtol=1e-13)
    np.testing.assert_allclose(gradient, generic, rtol=1e-11, atol=1e-13)
    assert float(jnp.abs(gradient).min()) > 1e-8


def test_coordinates_and_places_in_beta_are_inverse_to_each_other():
    transformer = _transformer(layers=2, heads=3, hidden=None)
    coordinates = [transformer.coordinate(index) for index in range(transformer.size)]
    assert [transformer.index(coordinate) for coordinate in coordinates] == list(range(transformer.size))
    assert len(set(coordinates)) == transformer.size == 2 * DIM * 3 * 2
    assert coordinates[0] == (0, 0, "KQ", 0)
    assert coordinates[-1] == (1, 2, "VO", DIM - 1)


def test_the_smallest_task_is_the_attention_teacher_task():
    known = attention_teacher_task(3, samples=12, tokens=TOKENS, dim=DIM)
    task = transformer_teacher_task(3, layers=1, heads=1, residual=False, samples=12, tokens=TOKENS, dim=DIM)
    for name in ("u0", "v0", "teacher"):
        np.testing.assert_array_equal(getattr(task, name), getattr(known, name))
    np.testing.assert_array_equal(task.network.inputs, known.network.inputs)
    np.testing.assert_array_equal(task.network.targets, known.network.targets)


def test_the_teacher_is_a_minimum_with_zero_loss():
    task = transformer_teacher_task(2, layers=2, heads=2, samples=40, tokens=TOKENS, dim=DIM, hidden=HIDDEN)
    value, gradient = task.network.value_and_gradient(jnp.asarray(task.teacher))
    assert float(value) < 1e-28
    assert float(jnp.abs(gradient).max()) < 1e-13
    assert np.linalg.eigvalsh(task.network.hessian(jnp.asarray(task.teacher))).min() > 0


def test_a_batch_keeps_the_transformer():
    network = transformer_teacher_task(0, layers=1, heads=2, samples=8, hidden=HIDDEN).network
    beta = jnp.full(network.h.size, 0.2)
    halves = [network.batch(jnp.arange(first, first + 4)) for first in (0, 4)]
    assert all(isinstance(half, TransformerNetwork) for half in halves)
    np.testing.assert_allclose(sum(half(beta) for half in halves) / 2, network(beta), rtol=1e-13)
