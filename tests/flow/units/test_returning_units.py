"""Units of degree above 2 that return to their initial scale, and what their flow conserves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.flow import unit_flow
from saddlescope.numerics.conserved_forms import conserved_forms, moment, random_moments
from saddlescope.theory import unit_learning

DATA = np.array([[1, 0.5], [0.5, 1]]), np.array([1.0, 0.0])  # fixture of Zhao et al. 2026, arXiv 2607.12332


def squared(f, y):
    return (f - y) ** 2


def product(theta, x, kind):
    """A coordinate of a diagonal network, as deep as there are weights."""
    return jnp.prod(theta) * x[kind]


def quadratic(theta, x, kind):
    return theta[0] * theta[1] ** 2 * x[kind]


def blocks(theta, x, kind):
    """A rank-one part of a tensor network with two weights in two of its factors."""
    return theta[4] * (theta[:2] @ theta[2:4]) * x[kind]


CASES = {
    "depth 3": (product, np.array([[-0.2, -0.5, -0.4], [-2.4, 1.8, 1.1]])),
    "depth 4": (product, np.array([[0.8, 0.7, 0.9, 1.0], [1.5, 1.4, 1.3, 1.6]])),
    "quadratic neuron": (quadratic, np.array([[0.4, 0.6], [0.8, 1.5]])),
    "blocks": (blocks, np.array([[0.4, -0.1, 0.5, 0.2, 0.3], [1.1, 0.3, 0.9, 0.5, 1.6]])),
}


def followed(unit, weights, log_scale, until, tolerance=1e-6):
    return unit_flow(
        unit, DATA, squared, weights, degree=degree_of(unit, weights), log_scale=log_scale, until=until,
        tolerance=tolerance, kinds=np.arange(2),
    )  # fmt: skip


def degree_of(unit, weights):
    return float(weights.shape[1]) if unit is product else 3.0


def predicted(unit, weights):
    parameters = np.zeros(weights.shape[1])
    return unit_learning(unit, DATA, squared, parameters=parameters, kinds=2, width=1, weights=weights)


def by_weights(unit, weights, alpha, times):
    """Return the losses of the flow of the weights themselves, by SciPy."""
    X, y = DATA

    def parts(theta):
        if unit is product:
            return np.prod(theta), np.array([np.prod(np.delete(theta, i)) for i in range(len(theta))])
        if unit is quadratic:
            return theta[0] * theta[1] ** 2, np.array([theta[1] ** 2, 2 * theta[0] * theta[1]])
        a, b, c = theta[:2], theta[2:4], theta[4]
        return c * a @ b, np.array([*(c * b), *(c * a), a @ b])

    def beta(flat):
        return np.array([parts(theta)[0] for theta in flat.reshape(weights.shape)])

    def slope(t, flat):
        force = X.T @ (y - X @ beta(flat))  # two samples and the factor 2 of the square
        return np.concatenate(
            [f * parts(theta)[1] for f, theta in zip(force, flat.reshape(weights.shape), strict=True)]
        )

    unit_of_time = alpha ** (2 - degree_of(unit, weights))
    path = solve_ivp(
        slope, (0, times[-1] * unit_of_time), (alpha * weights).ravel(), "LSODA", t_eval=times * unit_of_time,
        rtol=1e-12, atol=1e-14,
    )  # fmt: skip
    return np.array([np.mean((X @ beta(flat) - y) ** 2) for flat in path.y.T])


def drift(unit, run):
    """Return the largest change of a difference of squares that the flow conserves, relative to its terms."""
    u = run.directions
    second = u[..., 2 if unit is blocks else 1] ** 2 / (2.0 if unit is quadratic else 1.0)
    values = u[..., 0] ** 2 - second
    return np.max(np.abs(values - values[0] * np.exp(2 * (run.log_norms[0] - run.log_norms))))


@pytest.mark.parametrize(
    "name", ["depth 3", pytest.param("depth 4", marks=pytest.mark.slow), "quadratic neuron", "blocks"]
)
def test_a_unit_leaves_and_returns_with_the_other_sign(name):
    """The second coordinate enters first, leaves when the first one has entered, and returns: loss 0."""
    unit, weights = CASES[name]
    learned = predicted(unit, weights)
    assert learned.status.value == "converged", learned.message
    np.testing.assert_allclose(learned.staircase.losses, [0.5, 0.4, 0.1, 0.0], atol=1e-9)
    assert [stage.entered for stage in learned.stages] == [None, 1, 0, 1]
    if name == "depth 3":
        np.testing.assert_allclose(learned.stages[-1].time, 12.80968, rtol=1e-6)
    until = 1.2 * learned.stages[-1].time
    run = followed(unit, weights, np.log(1e-2), until, tolerance=1e-7)
    np.testing.assert_allclose(run.losses, by_weights(unit, weights, 1e-2, run.times), atol=1e-5)
    assert drift(unit, run) < 1e-10
    small = followed(unit, weights, np.log(1e-4), until)
    last = small.times[np.flatnonzero(small.losses > 0.05)[-1]]
    np.testing.assert_allclose(last, learned.stages[-1].time, atol=until / 200)
    np.testing.assert_allclose(small.losses[-1], 0, atol=1e-10)
    assert drift(unit, small) < 1e-10


@pytest.mark.parametrize("log10", [-8, -100])
def test_what_is_conserved_does_not_drift_at_tiny_scales(log10):
    """Both coordinates cross 0 on their way; a unit of order one would change in no time from 1e-100."""
    unit, weights = CASES["depth 3"]
    assert drift(unit, followed(unit, weights, log10 * np.log(10), 2.4)) < 1e-10


def test_balanced_units_are_decided_by_nothing_and_stay():
    weights = np.array([[0.4, 0.4, 0.4], [2.0, 2.0, 2.0]])
    learned = predicted(product, weights)
    assert (learned.status.value, len(learned.stages)) == ("converged", 3)
    run = followed(product, weights, np.log(1e-4), 40.0)
    np.testing.assert_allclose(run.losses[-1], 0.1, atol=1e-4)


@pytest.mark.parametrize(("size", "count"), [(3, 2), (40, 39), (101, 0)])
def test_the_forms_of_a_product_are_differences_of_squares(size, count):
    rng = np.random.default_rng(0)
    thetas = jnp.asarray(rng.uniform(0.9, 1.1, (size + 20, 1, size)))
    slopes = jnp.prod(thetas, axis=2, keepdims=True) / thetas
    forms = conserved_forms(np.asarray(jax.vmap(moment)(slopes, thetas)), size)
    assert forms.shape == (count, size, size)
    np.testing.assert_allclose(np.trace(forms, axis1=1, axis2=2), 0, atol=1e-9)
    np.testing.assert_allclose(forms * (1 - np.eye(size)), 0, atol=1e-9)


def test_forms_of_units_that_bend_only_at_large_weights_are_no_laws():
    """Where sinh is linear, products have the forms of the product of three blocks; only a^2 - b^2 is conserved."""
    x = jnp.array([1.0, 2.0])

    def bends(thetas, kinds):
        return jnp.sum(thetas[:, 0] * thetas[:, 1] * jnp.sinh(1e-6 * thetas[:, 2:] @ x))

    def product(thetas, kinds):
        return jnp.sum(thetas[:, 0] * thetas[:, 1] * (thetas[:, 2:] @ x))

    counts = [len(conserved_forms(np.asarray(random_moments(unit, 1, 4)[0]), 4)) for unit in (bends, product)]
    along_x = 1  # the form of the weights orthogonal to the only sample
    assert counts == [1 + along_x, 2 + along_x]


def test_blocks_that_are_balanced_but_for_rounding_stay_so():
    """a^2 - b^2 and a^2 - |w|^2 are 0 of the given weights, not of twins that start apart from them."""
    start = {"a": np.ones(1), "b": -np.ones(1), "w": np.array([[0.6, 0.8]])}
    run = unit_flow(
        lambda theta, x: theta["a"] * theta["b"] * (theta["w"] @ x), (np.eye(2), np.array([1.0, -2.0])), squared, start,
        degree=3.0, log_scale=-8 * np.log(10), until=0.1, tolerance=1e-8,
    )  # fmt: skip
    a, b, *w = run.directions[:, 0].T
    np.testing.assert_allclose(
        np.stack([b**2, np.sum(np.square(w), axis=0)]), np.stack([a**2, a**2]), rtol=0, atol=2e-15
    )
