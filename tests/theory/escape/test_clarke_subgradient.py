"""The Clarke residual: the gradient's where all is smooth, a cone solver's at kinks, 0 at the paper's optimum."""

from itertools import pairwise

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.problems import CIRCLE_OPTIMUM as OPTIMUM
from tests.problems import alternating_circle

from saddlescope.models.deep import layered_output
from saddlescope.theory.escape.clarke_subgradient import clarke_residual
from saddlescope.theory.escape.speed import on_sphere

X, G = (data.T for data in alternating_circle(8))


def gradient_residual(weights, inputs, gradients):
    weights = tuple(jnp.asarray(weight) for weight in on_sphere(weights))
    loss, slopes = jax.value_and_grad(lambda w: jnp.sum(gradients.T * layered_output(w, jnp.asarray(inputs.T))))(
        weights
    )
    return np.sqrt(sum(float(jnp.sum((g - loss * w) ** 2)) for g, w in zip(slopes, weights, strict=True)))


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_is_the_gradients_where_all_is_smooth(depth):
    rng = np.random.default_rng(depth)
    widths = [3, *[4] * (depth - 1), 2]
    weights = tuple(rng.normal(size=(out, into)) for into, out in pairwise(widths))
    inputs, gradients = rng.normal(size=(3, 6)), rng.normal(size=(2, 6))
    found = clarke_residual(weights, inputs, gradients)
    assert found == pytest.approx(gradient_residual(weights, inputs, gradients), rel=1e-12)
    assert found > 1e-4


@pytest.mark.parametrize("more", [0, 1, 4])
def test_vanishes_at_the_papers_optimum_where_the_gradients_does_not(more):
    weights = (*OPTIMUM[:2], *[np.eye(1)] * more, OPTIMUM[2])
    assert clarke_residual(weights, X, G) < 1e-14
    assert gradient_residual(weights, X, G) > 0.4


def test_neither_dead_neurons_nor_rays_nor_scale_matter():
    padded = np.zeros((6, 2)), np.zeros((3, 6)), np.zeros((1, 3))
    for place, weight in zip(padded, OPTIMUM, strict=True):
        place[: weight.shape[0], : weight.shape[1]] = 7 * weight
    halves = np.hstack([0.5 * X, 2 * X, np.zeros((2, 1))])
    split = np.hstack([G, G / 4, np.ones((1, 1))])
    assert clarke_residual(padded, halves, split) < 1e-14


def moved(direction):
    """The optimum with one neuron turned: no escape direction any more."""
    first = OPTIMUM[0].copy()
    first[0] = [np.cos(direction) / 2, np.sin(direction) / 2]
    return (first, *OPTIMUM[1:])


@pytest.mark.parametrize("angle", [np.pi / 4, np.pi / 2, 0.3])
def test_agrees_with_a_cone_solver_over_all_sides_of_the_kinks(angle):
    weights = on_sphere(moved(angle))
    speed = -float(np.sum(G.T * layered_output(tuple(jnp.asarray(w) for w in weights), jnp.asarray(X.T))))
    # Gradients at points nearby, all of them limits: in a generic direction every kink falls to one of its sides.
    rng, limits = np.random.default_rng(0), []
    slope = jax.jit(jax.grad(lambda w: -jnp.sum(G.T * layered_output(w, jnp.asarray(X.T)))))
    for _ in range(1500):
        near = tuple(jnp.asarray(w + 1e-9 * rng.normal(size=w.shape)) for w in weights)
        limits.append(np.concatenate([np.asarray(part).ravel() for part in slope(near)]))
    columns = np.unique(np.array(limits).round(7), axis=0)
    shares = cvxpy.Variable(len(columns), nonneg=True)
    target = speed * np.concatenate([w.ravel() for w in weights])
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.norm(columns.T @ shares - target)), [cvxpy.sum(shares) == 1])
    problem.solve(solver=cvxpy.CLARABEL)
    assert problem.value > 0.05
    assert clarke_residual(weights, X, G) == pytest.approx(problem.value, abs=2e-6)


def test_one_neuron_that_should_turn_is_no_escape_direction():
    """Both samples on its kink want it to turn the same way: a box around every multiplier would miss that."""
    inputs = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    weights = (np.array([[0.0, 1.0]]), np.eye(1))
    stationary, turning = -np.array([[0.5], [0.5], [1.0]]), -np.array([[0.5], [-0.3], [1.0]])
    assert clarke_residual(weights, inputs, stationary.T) < 1e-14  # either way is uphill
    assert clarke_residual(weights, inputs, turning.T) == pytest.approx(0.3, abs=1e-12)
