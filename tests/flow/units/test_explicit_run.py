"""Explicit steps of units of degree 2: neurons held at a kink, jumps, and where implicit steps go on."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.flow import FlowError, unit_flow
from saddlescope.papers.beyond.shared.units import coordinate, half_square, relu_neuron


@pytest.mark.parametrize(("side", "allowed"), [(0.0, 1e-5), (0.01, 1e-4), (-0.01, 1e-4)])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_a_neuron_held_at_a_kink_follows_the_logistic_function_along_it(side, allowed, tolerance):
    """The first sample pulls w up across the kink of the second, and the second pulls it back.

    On the kink w = q k with k = (0.8, -0.6), a = q and z = a (w . x_1) = 0.8 q^2, dz/dt = 0.8 (1 - z) z.
    """
    data = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([1.0, -3.0])
    w = np.array([0.8, -0.6]) + side * np.array([0.6, 0.8])
    run = unit_flow(
        relu_neuron, data, half_square, {"a": np.array([np.linalg.norm(w)]), "w": w[None]}, degree=2.0, log_scale=-5.0,
        until=3.5, tolerance=tolerance, level=np.sqrt(1.25),
    )  # fmt: skip
    odds = 0.8 * np.exp(-10 + 0.8 * 5 * run.times)
    np.testing.assert_allclose(0.4 * run.norms[1:, 0] ** 2, (odds / (1 + odds))[1:], rtol=allowed * 20)
    np.testing.assert_allclose(run.rises, (10 - np.log(0.8)) / 4, atol=allowed)
    assert run.evaluations < 10_000


@pytest.mark.parametrize("seed", [1, 3])
def test_neurons_in_the_plane_follow_gradient_descent_with_small_steps(seed):
    """Some of them are held at kinks, where steps of gradient descent go from one side to the other."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((6, 2)), rng.standard_normal(6)
    w = rng.standard_normal((8, 2))
    a = rng.choice([-1, 1], 8) * np.linalg.norm(w, axis=1)
    until = 6 / max(float(np.linalg.norm(X.T @ (y * (X @ v > 0)))) / 6 for v in rng.standard_normal((200, 2)))
    times = np.linspace(0, until, 61)
    run = unit_flow(
        relu_neuron, (X, y), half_square, {"a": a, "w": w}, degree=2.0, log_scale=np.log(1e-2), until=until,
        tolerance=1e-4, record=times,
    )  # fmt: skip
    a, w, losses, steps = 1e-2 * a, 1e-2 * w, [], 3000
    for _ in times:
        losses.append(np.mean((np.maximum(X @ w.T, 0) @ a - y) ** 2) / 2)
        for _ in range(steps):
            z = X @ w.T
            h = np.maximum(z, 0)
            r = (y - h @ a) / 6
            dt = (times[1] - times[0]) * np.log(1e2) / steps
            a, w = a + dt * r @ h, w + dt * (((z > 0) * a).T * r) @ X
    np.testing.assert_allclose(run.losses, losses, atol=2e-3 * losses[0])


def test_units_leave_a_kink_when_one_side_no_longer_pushes():
    """Late stages follow from when they left it: released at the ends of long steps, times were off by 1e-2."""
    rng = np.random.default_rng(42)
    X, y = rng.standard_normal((6, 2)), rng.standard_normal(6)
    w = rng.standard_normal((8, 2))
    weights = {"a": rng.choice([-1, 1], 8) * np.linalg.norm(w, axis=1), "w": w}
    rises = [
        unit_flow(
            relu_neuron,
            (X, y),
            half_square,
            weights,
            degree=2.0,
            log_scale=np.log(1e-8),
            until=24.0,
            tolerance=tolerance,
        ).rises
        for tolerance in (1e-3, 1e-5, 1e-7)
    ]
    np.testing.assert_allclose(rises[0], rises[2], atol=2e-3)
    np.testing.assert_allclose(rises[1], rises[2], atol=2e-6)


def coordinates(**given):
    data = np.eye(2), np.array([2.0, 1.0])
    return unit_flow(
        coordinate, data, half_square, np.ones((2, 2)), degree=2.0,
        log_scale=-600.0, until=3.0, tolerance=1e-4, kinds=np.arange(2), **given,
    )  # fmt: skip


def test_implicit_steps_go_on_where_the_evaluations_do_not_suffice():
    """Two coordinates of strengths 2 and 1 on two samples are learned at T = 1 and 2."""
    explicit, mixed = coordinates(), coordinates(max_evaluations=5000)
    assert explicit.evaluations > 5000 > mixed.evaluations
    np.testing.assert_allclose(mixed.rises, explicit.rises, atol=1e-5)
    np.testing.assert_allclose(mixed.losses, explicit.losses, atol=1e-3)
    assert mixed.times[-1] == 3.0


def test_a_jump_after_a_long_plateau_is_decided_by_no_error():
    """One tanh neuron learns the parity of three bits in no time, but for its plateau of 1e6."""
    X = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3), axis=-1).reshape(8, 3)
    y, start, until = X.prod(axis=1), np.array([-0.6, 0.5, 0.45, 0.4]), 8e6

    def slope(t, theta):
        f = np.tanh(X @ theta[1:])
        r = (y - theta[0] * f) / 8
        return np.array([r @ f, *(theta[0] * (r * (1 - f**2)) @ X)])

    run = unit_flow(
        lambda theta, x: theta[0] * jnp.tanh(theta[1:] @ x), (X, y), half_square, start[None], degree=2.0,
        log_scale=np.log(1e-3), until=until / np.log(1e3), tolerance=1e-6, level=0.1,
    )  # fmt: skip
    rise = lambda t, theta: theta @ theta - 0.01  # noqa: E731
    exact = solve_ivp(slope, (0, until), 1e-3 * start, "LSODA", events=rise, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(run.rises * np.log(1e3), exact.t_events[0], rtol=1e-6)
    theta = exact.y[:, -1]
    np.testing.assert_allclose(run.losses[-1], np.mean((theta[0] * np.tanh(X @ theta[1:]) - y) ** 2) / 2, rtol=1e-6)


def test_a_blow_up_in_finite_time_is_named_at_its_time():
    """b = uv of u = alpha, v = 0: db/dt = sqrt(4 b^2 + alpha^4) (1 + b^2), infinite at arccosh(2 / alpha^2) / 2."""
    time = np.arccosh(2e8) / 2 / np.log(1e4)
    with pytest.raises(FlowError, match=f"blow up in finite time, at T = {time:.6g}: the loss falls without bound"):
        unit_flow(
            lambda theta, x: theta[0] * theta[1] * x, (np.ones(1), np.ones(1)), lambda f, y: -(f**3) / 3 - f,
            np.array([[1.0, 0.0]]), degree=2.0, log_scale=np.log(1e-4), until=1.5, tolerance=1e-7,
        )  # fmt: skip
