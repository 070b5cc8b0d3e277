"""Explicit steps of units of degree 2: neurons held at a kink, and where implicit steps go on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow import FlowError, unit_flow


def squared(output, target):
    return 0.5 * (output - target) ** 2


def relu(theta, x):
    return theta["a"] * jax.nn.relu(theta["w"] @ x)


@pytest.mark.parametrize("side", [-0.1, 0.0, 0.1])
def test_a_neuron_held_at_a_kink_follows_the_logistic_function_along_it(side):
    """The first sample pulls w up across the kink of the second, and the second pulls it back.

    On the kink w = q k with k = (0.8, -0.6), a = q and z = a (w . x_1) = 0.8 q^2, dz/dt = 0.8 (1 - z) z.
    """
    data = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([1.0, -3.0])
    w = np.array([0.8, -0.6]) + side * np.array([0.6, 0.8])
    run = unit_flow(
        relu, data, squared, {"a": np.array([np.linalg.norm(w)]), "w": w[None]}, degree=2.0, log_scale=-5.0,
        until=3.5, tolerance=1e-2, level=np.sqrt(1.25),
    )  # fmt: skip
    exact = (np.log(1 / 0.8) + 10 + np.log(0.5 / 0.5)) / 0.8 / 5
    start = 0.1 if side else 2e-3  # in the first units of time, w goes to the kink
    np.testing.assert_allclose(run.rises, exact, atol=start)
    z = 0.8 * run.norms[:, 0] ** 2 / 2
    np.testing.assert_allclose(z[-1], 1, atol=2e-2)


def coordinates(**given):
    data = np.eye(2), np.array([2.0, 1.0])
    return unit_flow(
        lambda theta, x, kind: theta[0] * theta[1] * x[kind], data, squared, np.ones((2, 2)), degree=2.0,
        log_scale=-600.0, until=3.0, tolerance=1e-4, kinds=np.arange(2), **given,
    )  # fmt: skip


def test_implicit_steps_go_on_where_the_evaluations_do_not_suffice():
    """Two coordinates of strengths 2 and 1 on two samples are learned at T = 1 and 2."""
    explicit, mixed = coordinates(), coordinates(max_evaluations=5000)
    assert explicit.evaluations > 5000 > mixed.evaluations
    np.testing.assert_allclose(mixed.rises, explicit.rises, atol=1e-5)
    np.testing.assert_allclose(mixed.losses, explicit.losses, atol=1e-3)
    assert mixed.times[-1] == 3.0


def test_progress_rises_to_one_and_a_flow_can_be_asked_for_its_start_alone():
    told = []
    run = coordinates(report=lambda done, note: told.append(done))
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert np.all(np.diff(run.times) > 0)


def test_weights_that_grow_without_bound_are_one_sentence():
    with pytest.raises(FlowError, match="A norm exceeds 1e13 at T = "):
        unit_flow(
            lambda theta, x: theta[0] * theta[1] * x, (np.ones(1), np.ones(1)), lambda f, y: -f * y, np.ones((1, 2)),
            degree=2.0, log_scale=-5.0, until=20.0, tolerance=1e-3,
        )  # fmt: skip


def test_a_loss_that_becomes_nan_is_one_sentence():
    def broken(output, target):
        return jnp.where(output > 0.5, jnp.nan, 0.5) * (output - target) ** 2

    with pytest.raises(FlowError, match="NaN or infinite just after T = "):
        unit_flow(
            lambda theta, x: theta[0] * theta[1] * x, (np.ones(1), np.ones(1)), broken, np.ones((1, 2)),
            degree=2.0, log_scale=-5.0, until=20.0, tolerance=1e-3,
        )  # fmt: skip
