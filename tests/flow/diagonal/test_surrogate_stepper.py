"""Windows: a linear gradient needs hardly any; every window's end is compared with the true gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, ParameterInit, gradient_flow
from saddlescope.loss import AbstractLoss
from saddlescope.models import DiagonalNetwork, attention_teacher_task, diagonal_linear_network


class Counted(AbstractLoss):
    """A quadratic with columns of its Hessian that fails on requests for unneeded ones."""

    a: jax.Array
    b: jax.Array

    def __call__(self, beta):
        return 0.5 * jnp.sum(self.a * (self.b - beta) ** 2)

    def hessian_columns(self, beta, columns):
        return jnp.diag(self.a)[:, columns]


def test_columns_of_the_hessian_are_asked_for_only_where_something_moves():
    """Of 300 coordinates 3 are pulled: 3 columns, not 300, and a matrix of 3 x 3 in Newton's method."""
    pulled = jnp.zeros(300).at[jnp.array([4, 100, 299])].set(jnp.array([1.0, -2.0, 0.5]))
    u, v = np.random.default_rng(0).standard_normal((2, 300))
    flow = gradient_flow(
        Counted(jnp.ones(300), pulled), DiagonalInit(u, v, -40.0), until=10.0, tolerance=1e-6, verify=False
    )
    np.testing.assert_allclose(flow.beta[-1], pulled, atol=1e-8)
    assert flow.evaluations.columns == 3


def test_a_linear_gradient_costs_a_few_evaluations_however_many_steps_it_takes():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((40, 12))
    teacher = rng.standard_normal(12)
    loss = diagonal_linear_network(features, features @ teacher)
    flow = gradient_flow(
        loss, DiagonalInit(*rng.standard_normal((2, 12)), -70.0), until=100.0, tolerance=1e-7, verify=False
    )
    assert len(flow.times) > 400
    assert flow.evaluations.gradients < 100
    np.testing.assert_allclose(flow.beta[-1], teacher, atol=1e-6)


def test_own_and_automatic_columns_of_the_hessian_are_the_same():
    """Own columns of an attention head for one, few and many; products with the gradient for another layout."""
    task = attention_teacher_task(4, samples=30, tokens=3, dim=20)
    beta = jnp.asarray(0.4 * np.random.default_rng(2).standard_normal(40))
    exact = jax.hessian(lambda b: DiagonalNetwork.__call__(task.network, b))(beta)
    for columns in ([7], [3, 39, 0], list(range(5, 38))):
        own = task.network.hessian_columns(beta, jnp.array(columns))
        np.testing.assert_allclose(own, exact[:, jnp.array(columns)], atol=1e-13)


@pytest.mark.slow
def test_each_tolerance_brings_the_error_down_with_it():
    """Down to 1e-8, so neither nodes that crowd together nor rounding errors set a floor."""
    task = attention_teacher_task(2, samples=40, tokens=3, dim=6)
    start = DiagonalInit(task.u0, task.v0, -8 * np.log(10))
    runs = [
        gradient_flow(task.network, start, until=20.0, tolerance=tolerance, level=0.05, record=np.zeros(1))
        for tolerance in (1e-9, 1e-4, 1e-6, 1e-8)
    ]
    exact = np.array([c.time for c in runs[0].crossings])
    for run, tolerance in zip(runs[1:], (1e-4, 1e-6, 1e-8), strict=True):
        error = np.abs(np.array([c.time for c in run.crossings]) / exact - 1).max()
        assert error < 3 * tolerance
    assert runs[3].evaluations.gradients < 6 * runs[1].evaluations.gradients


@pytest.mark.parametrize("digits", [32, 4096])
def test_a_tiny_scale_costs_no_more(digits):
    task = attention_teacher_task(1, samples=40, tokens=4, dim=5)
    counts = [
        gradient_flow(
            task.network, DiagonalInit(task.u0, task.v0, -d * np.log(10)), until=30.0, tolerance=1e-5
        ).evaluations
        for d in (8, digits)
    ]
    assert counts[1].gradients < 1.5 * counts[0].gradients


def test_a_saddle_at_the_start_and_a_wide_range_of_lengths():
    """beta moves by 1e-3, 1 and 1e3: the length of the surrogate comes from the loss, not from a default."""
    for size in (1e-3, 1.0, 1e3):
        loss = Counted(jnp.array([1.0, 3.0]) / size, size * jnp.array([1.0, -1.0]))
        flow = gradient_flow(loss, ParameterInit(np.array([0.0, 1e-3 * size])), until=30.0 * size, tolerance=1e-7)
        np.testing.assert_allclose(flow.values[-1], loss.b, rtol=1e-7)
        times = np.array([0.5, 2.0]) * size
        np.testing.assert_allclose(flow(times)[:, 0] / size, 1 - np.exp(-times / size), rtol=1e-6)


def test_a_kink_away_from_0_is_followed_with_short_windows():
    """(|beta| - 1)^2 has a kink in its second derivative nowhere, |beta - 1/2| one in its first: exact by parts."""

    def loss(x):
        return jnp.sum(0.5 * x**2 + jnp.abs(x - 0.5))  # gradient x + sign(x - 1/2)

    flow = gradient_flow(loss, ParameterInit(np.array([3.0])), until=0.7, tolerance=1e-6)
    np.testing.assert_allclose(flow.values[-1], 4 * np.exp(-0.7) - 1, rtol=1e-6)
