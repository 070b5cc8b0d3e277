"""Perceptrons reduced to the span of their samples: against full networks by automatic differentiation, and laws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from saddlescope._shared.errors import InputError
from saddlescope.models import StructuredIdentityTask, random_rotation
from saddlescope.models.concepts.perceptron import (
    PerceptronWeights,
    perceptron_loss,
    perceptron_output,
    perceptron_weights,
    weights_from_span,
    weights_in_span,
)


def _task(dim=5, **given):
    options = {"samples_per_cluster": 20, "dim": dim, "origin": True, "rotation": random_rotation(dim, seed=3)}
    return StructuredIdentityTask((1.0, 2.0), (0.3, 0.5), **options | given)


def _full_loss(weights, samples, relu, mean_over_dimensions):
    """Loss by definition, one sample per row."""
    h = samples
    for n, weight in enumerate(weights.weights):
        h = jnp.einsum("ij,nj->ni", weight, h)
        h = h + weights.biases[n][None] if weights.biases else h
        if relu and n < len(weights.weights) - 1:
            h = jnp.where(h > 0, h, 0.0)
    squares = jnp.sum((h - samples) ** 2, axis=1)
    return jnp.mean(squares) / (samples.shape[1] if mean_over_dimensions else 2)


@pytest.mark.parametrize(
    ("relu", "bias", "mean_over_dimensions", "widths"),
    [
        (False, False, True, (5, 5)),
        (False, True, False, (5, 3, 6, 2, 5)),
        (True, True, True, (5, 5)),
        (True, False, False, (5, 3, 6, 2, 5)),
    ],
)
def test_loss_and_gradient_are_those_of_the_full_network(relu, bias, widths, mean_over_dimensions):
    task = _task()
    R = task.directions[:, :2]
    start = perceptron_weights(widths, seed=1, bias=bias)
    chosen = np.array([0, 3, 25, 41, 59])
    options = {"relu": relu, "mean_over_dimensions": mean_over_dimensions}
    loss = perceptron_loss(task.draw(0), R, **options).batch(jnp.asarray(chosen))
    reduced = weights_in_span(start, R)
    loss_value, slope = jax.jit(jax.value_and_grad(_full_loss), static_argnums=(2, 3))(
        start, jnp.asarray(task.draw(0)[chosen]), relu, mean_over_dimensions
    )
    values = [eqx.filter_jit(lambda loss, at: jax.value_and_grad(loss)(at))(loss, reduced)]
    values += [eqx.filter_jit(lambda loss, at: loss.value_and_gradient(at))(loss, reduced)] if not relu else []
    for value, gradient in values:
        np.testing.assert_allclose(value, loss_value, rtol=1e-12)
        wanted = weights_in_span(slope, R)
        jax.tree.map(lambda ours, full: np.testing.assert_allclose(ours, full, atol=1e-13), gradient, wanted)
        beyond = slope.weights[0] - wanted.weights[0] @ R.T
        np.testing.assert_allclose(beyond, 0, atol=1e-13)
    points = np.array([[1.0, 2.0], [0.0, -1.0]])
    np.testing.assert_allclose(
        perceptron_output(reduced, points, relu=relu),
        perceptron_output(start, points @ R.T, relu=relu),
        atol=1e-13,
    )


def test_without_directions_the_weights_are_full():
    task = _task()
    loss, start = perceptron_loss(task.draw(0)), perceptron_weights((5, 4, 5), seed=2)
    np.testing.assert_allclose(loss(start), _full_loss(start, task.draw(0), False, False), rtol=1e-12)
    np.testing.assert_allclose(loss.value_and_gradient(start)[0], loss(start), rtol=1e-13)


def test_the_start_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    weights = perceptron_weights((64, 16, 5), seed=0, num_starts=300)
    for n in range(2):
        layer = torch.nn.Linear((64, 16)[n], (16, 5)[n])
        size = (64, 16)[n] ** -0.5
        for ours, theirs in ((weights.weights[n], layer.weight), (weights.biases[n], layer.bias)):
            assert ours.shape[1:] == tuple(theirs.shape)
            np.testing.assert_allclose([jnp.min(ours), jnp.max(ours)], [-size, size], rtol=0.01)
            np.testing.assert_allclose(jnp.std(ours), size / 3**0.5, rtol=0.02)
            assert float(theirs.detach().abs().max()) <= size
    alone = perceptron_weights((64, 16, 5), seed=7)
    jax.tree.map(lambda one, all_: np.testing.assert_array_equal(one, all_[7]), alone, weights)
    assert perceptron_weights((4, 4), seed=0, bias=False).biases == ()


def test_the_rest_of_the_first_weight_is_put_back():
    R = _task().directions[:, :2]
    start = perceptron_weights((5, 4, 5), seed=0)
    reduced = weights_in_span(start, R)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-14), weights_from_span(reduced, start, R), start)
    moved = reduced._replace(weights=(reduced.weights[0] + 1.0, reduced.weights[1]))
    back = weights_from_span(moved, start, R)
    np.testing.assert_allclose(back.weights[0] @ R, moved.weights[0], atol=1e-14)
    off = np.eye(5) - R @ R.T
    np.testing.assert_allclose(back.weights[0] @ off, start.weights[0] @ off, atol=1e-14)


@eqx.filter_jit
def _hessian(loss, weights):
    flat, build = ravel_pytree(weights)
    return jax.hessian(lambda at: loss(build(at)))(flat)


def _sharpness(loss, weights):
    return float(np.linalg.eigvalsh(_hessian(loss, weights))[-1])


def _minimum(depth, bias, rng, spread):
    """Return a network of width d that maps every point to itself: random layers, the last inverting the others."""
    weights, product, constant, biases = [], np.eye(3), np.zeros(3), []
    for _ in range(depth - 1):
        weights.append(np.eye(3) + spread * rng.standard_normal((3, 3)))
        biases.append(spread * rng.standard_normal(3))
        product, constant = weights[-1] @ product, weights[-1] @ constant + biases[-1]
    weights.append(np.linalg.inv(product))
    biases.append(-weights[-1] @ constant)
    made = PerceptronWeights(tuple(weights), tuple(biases) if bias else ())
    return jax.tree.map(jnp.asarray, made)


@pytest.mark.parametrize(("bias", "mean_over_dimensions"), [(False, True), (True, False)])
@pytest.mark.parametrize("depth", [1, 3])
def test_no_minimum_is_flatter_than_the_bound(depth, bias, mean_over_dimensions):
    task = _task(dim=3)
    R = task.directions[:, :2]
    loss = perceptron_loss(task.draw(1), R, mean_over_dimensions=mean_over_dimensions)
    rng, sharpest = np.random.default_rng(0), []
    for spread in (0.0, 0.05, 0.3, 1.0):
        weights = weights_in_span(_minimum(depth, bias, rng, spread), R)
        np.testing.assert_allclose(loss(weights), 0, atol=1e-24)
        bound = loss.largest_learning_rate(weights)
        sharpest.append(_sharpness(loss, weights))
        assert sharpest[-1] * bound >= 2 * (1 - 1e-9)
    if not bias or depth == 1:  # where the bound is attained
        np.testing.assert_allclose(sharpest[0] * bound, 2, rtol=1e-9)
    if not bias:
        A = task.draw(1).T @ task.draw(1) / len(task.draw(1))
        unit = 3 / 2 if mean_over_dimensions else 1.0
        np.testing.assert_allclose(bound, 2 * unit / (depth * np.linalg.eigvalsh(A)[-1]), rtol=1e-12)


def test_with_biases_a_minimum_can_be_flatter_than_without():
    """Use one dimension and one cluster far from the origin: a bias can centre the hidden unit."""
    samples = 3.0 + 0.1 * np.array([[-1.0], [1.0]])
    loss = perceptron_loss(samples)
    weights = PerceptronWeights((jnp.array([[10.0]]), jnp.array([[0.1]])), (jnp.array([-30.0]), jnp.array([3.0])))
    np.testing.assert_allclose(loss(weights), 0, atol=1e-24)
    plain = 2 * float(np.mean(samples**2))
    assert _sharpness(loss, weights) < plain / 5
    assert 2 / _sharpness(loss, weights) <= loss.largest_learning_rate(weights)


def test_narrow_networks_have_no_bound():
    loss = perceptron_loss(_task().draw(0), _task().directions[:, :2])
    weights = weights_in_span(perceptron_weights((5, 1, 5), seed=0), _task().directions[:, :2])
    assert loss.largest_learning_rate(weights) == float("inf")


@pytest.mark.parametrize("relu", [False, True])
def test_full_weights_raise_if_reduced_ones_are_needed(relu):
    task = _task()
    loss = perceptron_loss(task.draw(0), task.directions[:, :2], relu=relu)
    for weights in (perceptron_weights((5, 4, 5), seed=0), perceptron_weights((2, 4), seed=0)):
        with pytest.raises(InputError, match=r"weights must map 2 coordinates to 5 outputs; .*weights_in_span"):
            loss(weights)
