"""The flow in the time s: growth law, independence of the scale, conservation laws, and other solvers in time t."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.flow import ParameterInit, escape_flow, gradient_flow
from saddlescope.models.deep import (
    LayeredLoss,
    balancedness,
    half_squared_error,
    layered_output,
    layered_weights,
)


def _relu(inputs, weights):
    return layered_output(weights, inputs)


def _product(gradients, outputs):
    return jnp.sum(gradients * outputs)


def _saddle(inputs, gradients):
    """Output and localised loss of ReLU networks."""
    given = jnp.asarray(inputs.T), jnp.asarray(gradients.T)
    return jax.tree_util.Partial(_relu, given[0]), jax.tree_util.Partial(_product, given[1])


def _escape_direction(depth, seed=0):
    """On positive data with negative gradients: one positive neuron per layer along the singular vectors of -G X^T."""
    rng = np.random.default_rng(seed)
    inputs, gradients = np.abs(rng.standard_normal((3, 5))), -np.abs(rng.standard_normal((2, 5)))
    left, values, right = np.linalg.svd(-gradients @ inputs.T)
    weights = [np.zeros((out, into)) for out, into in [(4, 3), *(depth - 2) * [(4, 4)], (2, 4)]]
    weights[0][1], weights[-1][:, 1] = np.abs(right[0]), np.abs(left[:, 0])
    for weight in weights[1:-1]:
        weight[1, 1] = 1.0
    return inputs, gradients, tuple(weights), values[0]


@pytest.mark.parametrize("depth", [2, pytest.param(4, marks=pytest.mark.slow), 6])
def test_the_growth_law_from_an_escape_direction(depth):
    """With r = |theta| / sqrt(L): r' = s r^(L-1) in the time t, whatever the scale; to 1e-9."""
    inputs, gradients, weights, speed = _escape_direction(depth)
    output, cost = _saddle(inputs, gradients)
    slope = jax.grad(lambda w: cost(output(w)))(tuple(map(jnp.asarray, weights)))
    for ours, weight in zip(slope, weights, strict=True):  # Definition 2.1, with |theta|^2 = L
        np.testing.assert_allclose(ours, -speed * weight, atol=1e-14)
    rate = speed * depth ** (1 - depth / 2)
    for log_norm in (np.log(depth) / 2, -690.0, -1e5):
        flow = escape_flow(output, cost, weights, degree=depth, log_norm=log_norm, until=4 / rate, tolerance=1e-11)
        np.testing.assert_allclose(flow.rates, rate, rtol=1e-12)
        np.testing.assert_allclose(flow.log_norms - log_norm, rate * flow.times, atol=1e-9)
        np.testing.assert_allclose(
            flow.directions[0], weights[0][None] / np.sqrt(depth) + np.zeros((201, 4, 3)), atol=1e-12
        )
        scaled = speed * np.exp(flow.log_times - (2 - depth) * (log_norm - np.log(depth) / 2))  # s t / r_0^(2-L)
        if depth == 2:
            np.testing.assert_allclose(np.exp(flow.log_times), flow.times, atol=1e-12)  # s is t
            np.testing.assert_allclose(flow.log_norms - log_norm, scaled, atol=1e-9)
        else:  # the integral of r' = s r^(L-1): (r / r_0)^(2-L) = 1 - (L-2) s t / r_0^(2-L)
            left = np.exp((2 - depth) * (flow.log_norms - log_norm))
            assert left[-1] < 1e-3
            np.testing.assert_allclose(left, 1 - (depth - 2) * scaled, atol=1e-9)


def _random(seed=2, samples=6):
    rng = np.random.default_rng(seed)
    inputs, targets = np.abs(rng.standard_normal((samples, 3))), np.abs(rng.standard_normal((samples, 2)))
    return LayeredLoss(jnp.asarray(inputs), jnp.asarray(targets)), layered_weights((3, 5, 5, 2), seed=seed)


def test_the_direction_does_not_see_the_scale():
    """On the localised loss: the same path at the same times, the log norm shifted for ever; the loss in proportion."""
    loss, start = _random()
    flows = [
        escape_flow(
            loss.output, loss.cost_of, start, degree=3, until=20.0, log_norm=log_norm, localised=True, tolerance=1e-9
        )
        for log_norm in (0.0, -700.0, -1e5)
    ]
    for flow, shift in zip(flows[1:], (-700.0, -1e5), strict=True):
        for ours, first in zip(flow.directions, flows[0].directions, strict=True):
            np.testing.assert_array_equal(ours, first)
        np.testing.assert_allclose(flow.log_norms - shift, flows[0].log_norms, atol=1e-10)
        np.testing.assert_allclose(flow.log_times + shift, flows[0].log_times, atol=1e-9)
    first = flows[0]
    assert np.abs(first.directions[0][-1] - first.directions[0][0]).max() > 0.3
    # Euler's identity, in the localised loss of the direction: d log|theta| / ds = -L L_0(u)
    localised = (first.losses - loss.cost_of(jnp.zeros((6, 2)))) * np.exp(-3 * first.log_norms)
    np.testing.assert_allclose(first.rates, -3 * localised, rtol=1e-10)
    middle = np.gradient(first.log_norms, first.times, edge_order=2)[1:-1]
    np.testing.assert_allclose(middle, first.rates[1:-1], atol=2e-2 * first.rates.max())
    assert first.rates[-1] > 3 * first.rates[0]


@pytest.mark.slow
def test_the_escape_is_late_by_the_missing_log_norm_over_the_speed():
    """On the loss itself: the time to a radius is that of the alignment plus log(1/scale) / rate, at any scale."""
    loss, start = _random()
    flows = [
        escape_flow(loss.output, loss.cost_of, start, degree=3, until=1e6, log_norm=log_norm, stop=-5.0, tolerance=1e-9)
        for log_norm in (-30.0, -700.0, -1e5)
    ]
    rate = flows[-1].rates[-1]
    for flow, log_norm in zip(flows, (-30.0, -700.0, -1e5), strict=True):
        assert flow.status.ok
        np.testing.assert_allclose(flow.log_norms[-1], -5.0, atol=1e-9)
        np.testing.assert_allclose(flow.times[-1] - flows[0].times[-1], (-30.0 - log_norm) / rate, rtol=1e-5)
        for ours, last in zip(flow.directions, flows[0].directions, strict=True):
            np.testing.assert_allclose(ours[-1], last[-1], atol=2e-5)
    np.testing.assert_allclose(flows[2].log_times[-1], 1e5, rtol=1e-3)  # t itself is beyond float64


def _conserved(flow, observable):
    weights = [np.exp(flow.log_norms)[:, None, None] * direction for direction in flow.directions]
    return jax.vmap(observable)(tuple(map(jnp.asarray, weights)))


def diagonals(weights):
    """Return what gradient flow conserves with ReLU, too."""
    return tuple(map(jnp.diagonal, balancedness(weights)))


@pytest.mark.parametrize(("relu", "observable"), [(True, diagonals), (False, balancedness)])
def test_what_gradient_flow_conserves_is_conserved(relu, observable):
    loss, start = _random(seed=0)  # of those whose flow slides along no kink
    loss = LayeredLoss(loss.inputs, loss.targets, half_squared_error, relu)
    flow = escape_flow(loss.output, loss.cost_of, start, degree=3, until=30.0, log_norm=0.0, tolerance=1e-9)
    assert flow.losses[-1] < 0.9 * flow.losses[0]
    assert np.all(np.diff(flow.losses) <= 1e-9)
    for values in _conserved(flow, observable):
        assert np.abs(values[0]).max() > 0.03
        np.testing.assert_allclose(values, np.broadcast_to(values[0], values.shape), atol=1e-6)
    if relu:  # the off-diagonal entries are not conserved with ReLU: the test can fail
        moved = [np.abs(values - values[:1]).max() for values in _conserved(flow, balancedness)]
        assert max(moved) > 1e-2


@pytest.mark.parametrize("relu", [True, False])
def test_it_agrees_with_solvers_in_plain_time(relu):
    loss, start = _random(seed=12)  # its flow slides along no kink
    loss = LayeredLoss(loss.inputs, loss.targets, half_squared_error, relu)
    flow = escape_flow(loss.output, loss.cost_of, start, degree=3, until=8.0, tolerance=1e-9)
    times = np.exp(flow.log_times)[20::60]
    ours = [np.exp(flow.log_norms)[20::60, None, None] * path[20::60] for path in flow.directions]
    np.testing.assert_allclose(flow.log_norms[0], np.log(np.sqrt(sum(np.sum(w**2) for w in start))), rtol=1e-14)
    if not relu:
        path = gradient_flow(loss, ParameterInit(start), until=float(times[-1]), tolerance=1e-9)
        theirs = path.parameters(times)
    else:
        shapes = [w.shape for w in start]
        cuts = np.cumsum([w.size for w in start])[:-1]

        def split(flat):
            return [part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes, strict=True)]

        x, y = np.asarray(loss.inputs).T, np.asarray(loss.targets).T

        def slope(_, flat):
            w = split(flat)
            z1 = w[0] @ x
            z2 = w[1] @ np.maximum(z1, 0)
            back = (w[2] @ np.maximum(z2, 0) - y) / x.shape[1]
            down2 = (w[2].T @ back) * (z2 > 0)
            down1 = (w[1].T @ down2) * (z1 > 0)
            grads = down1 @ x.T, down2 @ np.maximum(z1, 0).T, back @ np.maximum(z2, 0).T
            return -np.concatenate([grad.ravel() for grad in grads])

        flat = np.concatenate([np.ravel(w) for w in start])
        solved = solve_ivp(slope, (0, times[-1]), flat, "DOP853", times, rtol=1e-10, atol=1e-10)
        theirs = [np.stack(weights) for weights in zip(*map(split, solved.y.T), strict=True)]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-6)  # some hundred steps at kinks, of 1e-9 each
        assert np.abs(mine[-1] - mine[0]).max() > 0.03


@pytest.mark.slow
def test_a_flow_along_a_kink_is_followed_within_the_tolerance():
    """At a tolerance that makes the zigzag affordable, the path is that of a finer one."""
    loss, start = _random(seed=9)
    rough, fine = (
        escape_flow(loss.output, loss.cost_of, start, degree=3, log_norm=0.0, until=20.0, tolerance=tolerance)
        for tolerance in (1e-3, 1e-6)
    )
    assert rough.steps < fine.steps / 20
    np.testing.assert_allclose(rough.losses, fine.losses, atol=2e-3)
    for ours, others in zip(rough.directions, fine.directions, strict=True):
        np.testing.assert_allclose(ours, others, atol=1e-2)
