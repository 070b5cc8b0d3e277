"""The speed of a network against the model of the same network, its scaling, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from saddlescope._shared.errors import InputError
from saddlescope.models import layered_output, layered_weights
from saddlescope.theory.escape.speed import (
    escape_speed,
    on_sphere,
    validate_depth,
    validate_saddle,
    validate_weights,
    validate_widths,
)

X = np.random.default_rng(0).normal(size=(3, 7))
G = np.random.default_rng(1).normal(size=(2, 7))


@pytest.mark.parametrize("widths", [(3, 4, 2), (3, 5, 1, 2), (3, 2, 6, 4, 2)])
def test_it_is_minus_the_trace_of_the_models_output(widths):
    weights = layered_weights(widths, seed=len(widths))
    expected = -np.trace(G.T @ np.asarray(layered_output(weights, jnp.asarray(X.T))).T)
    assert_allclose(escape_speed(weights, X.T, G.T), expected, rtol=1e-13)


def test_the_network_of_equation_2_has_speed_minus_one_half():
    j = np.arange(1, 9)
    inputs, gradients = np.stack([np.sin(np.pi * j / 4), np.cos(np.pi * j / 4)]), (-1.0) ** j[None]
    W1, W2 = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]) / 2, np.array([[1, -1, 1, -1]]) / 2
    assert escape_speed((W1, W2, [[1]]), inputs.T, gradients.T) == pytest.approx(-0.5, abs=1e-15)
    assert escape_speed((W1, W2, [[-1]]), inputs.T, gradients.T) == pytest.approx(0.5, abs=1e-15)


def test_the_sphere_scales_the_speed_by_the_degree():
    weights = layered_weights((3, 4, 5, 2), seed=4)
    scaled = on_sphere(weights)
    norm = sum(np.sum(np.asarray(w) ** 2) for w in weights)
    assert_allclose(sum(np.sum(w**2) for w in scaled), 3.0, rtol=1e-14)
    assert_allclose(escape_speed(scaled, X.T, G.T), escape_speed(weights, X.T, G.T) * (3 / norm) ** 1.5, rtol=1e-13)
    assert_allclose(on_sphere([1e-300 * np.asarray(w) for w in weights])[1], scaled[1], rtol=1e-13)


@pytest.mark.parametrize(
    ("inputs", "gradients", "sentence"),
    [
        (X, 0 * G, "gradients must not all be 0; got 14 zeros: the origin is then no saddle"),
        (0 * X, G, "inputs must not all be 0"),
        (X, G[0], r"gradients must have shape \(N, d_out\), a row per sample; got \(7,\)"),
        (X[:, :0], G, r"inputs must have shape \(N, d_in\), a row per sample; got \(0, 3\)"),
        (X, G[:, 1:], r"gradients must have a row per sample, as many as inputs; got shapes \(6, 2\) and \(7, 3\).$"),
        (X.T, G.T, r"got shapes \(2, 7\) and \(3, 7\). Pass `inputs.T` and `gradients.T`."),
        (X.T, G, r"got shapes \(7, 2\) and \(3, 7\). Pass `inputs.T`."),
        (X, G.T, r"got shapes \(2, 7\) and \(7, 3\). Pass `gradients.T`."),
        (np.where(X > 1, np.nan, X), G, "inputs must be finite; got"),
        (X, np.where(G > 0, np.inf, G), "gradients must be finite; got"),
        (1e200 * X, G, "inputs must have a largest entry between 1e-140 and 1e"),
        (X, 1e-200 * G, "gradients must have a largest entry between"),
        ("inputs", G, "inputs must be an array of real numbers"),
    ],
)
def test_bad_data_are_refused(inputs, gradients, sentence):
    with pytest.raises(InputError, match=sentence):
        validate_saddle(getattr(inputs, "T", inputs), gradients.T)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([np.ones((2, 3))], "depth L of at least 2; got 1"),
        ([np.ones((4, 3)), np.ones((2, 5))], r"W_l of shape \(n_l, n_\(l-1\)\); got shapes"),
        ([np.ones((4, 3)), np.ones((1, 4))], "to d_out = 2"),
        ([np.ones((4, 2)), np.ones((2, 4))], "map d_in = 3"),
        ([np.ones((4, 3)), np.ones(4)], "got shapes"),
        ([np.full((4, 3), np.nan), np.ones((2, 4))], "W_1 of weights must be finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, sentence):
    with pytest.raises(InputError, match=sentence):
        escape_speed(weights, X.T, G.T)


def test_depths_widths_and_zero_weights_are_checked():
    assert validate_widths(4) == (4,)
    assert validate_widths((2, 3)) == (2, 3)
    assert validate_depth(5) == 5
    assert len(validate_weights([np.ones((4, 3)), np.ones((2, 4))], X, G)) == 2
    with pytest.raises(InputError, match="depth must be an integer of at least 2; got 1"):
        validate_depth(1)
    for widths in (0, (), (4, 0)):
        with pytest.raises(InputError, match="widths must be integers of at least 1"):
            validate_widths(widths)
    with pytest.raises(InputError, match="weights must be finite and not all 0"):
        on_sphere([np.zeros((2, 2)), np.zeros((2, 2))])
