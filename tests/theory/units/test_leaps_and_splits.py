"""Utilities that vanish at the origin, units that split, losses of 0, and blow-up: closed forms of other papers."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.special import erf
from tests.problems import neuron, product

from saddlescope.flow import unit_flow
from saddlescope.papers.beyond.shared.units import half_square
from saddlescope.theory import unit_learning, width_ladder
from saddlescope.theory.units.embedding import embed
from saddlescope.theory.units.unit_network import UnitNetwork

CORNERS = np.array([[i, j, k] for i in (1.0, -1.0) for j in (1.0, -1.0) for k in (1.0, -1.0)])
XOR = CORNERS[:, :2], CORNERS[:, 0] * CORNERS[:, 1]
PARITY = CORNERS / 3, 0.1 * CORNERS.prod(axis=1)  # of three bits, whose sums do not cancel exactly
NEURON = {"a": np.zeros(()), "w": np.zeros(2)}


@pytest.mark.parametrize(
    ("activation", "curvature"),
    [
        (lambda z: jax.nn.gelu(z, approximate=False), (2 / np.pi) ** 0.5),
        (jax.nn.silu, 0.5),
        (lambda z: jnp.expm1(z), 1.0),
    ],
)
def test_xor_is_learned_by_the_second_order_of_an_activation(activation, curvature):
    """No linear part: U = g''(0) a w_1 w_2, so three equal weights c blow up at T = 1 / (g''(0) c) in t alpha."""
    c = 0.7
    weights = {"a": np.array([c]), "w": np.array([[c, c]])}
    learned = unit_learning(neuron(activation), XOR, half_square, parameters=NEURON, weights=weights, max_stages=1)
    assert (learned.degree, learned.time_unit) == (3.0, "t alpha^1")
    np.testing.assert_allclose(learned.stages[1].time, 1 / (curvature * c), rtol=1e-8)


def test_a_leap_whose_residual_has_a_linear_part_ends_there():
    weights = {"a": np.array([0.7, 0.5]), "w": np.array([[0.7, 0.7], [0.5, -0.4]])}
    learned = unit_learning(neuron(jax.nn.silu), XOR, half_square, parameters=NEURON, weights=weights)
    assert (learned.status.value, len(learned.stages)) == ("unstable", 2)
    assert "Terms of a degree below 3" in learned.message


@pytest.mark.parametrize(
    ("unit", "degree"),
    [
        (neuron(lambda z: z), 4),
        (neuron(jnp.tanh), 4),
        (neuron(jnp.square), 6),
    ],
)
def test_a_parity_that_no_unit_sees_at_the_origin_is_no_rate(unit, degree):
    parameters = {"a": np.zeros(()), "w": np.zeros(3)}
    learned = unit_learning(unit, PARITY, half_square, parameters=parameters, width=2)
    assert (learned.status.value, len(learned.stages), learned.end) == ("no_utility", 1, np.inf)
    assert f"degree below {degree}" in learned.message


def hermite_inputs():
    x, w = np.polynomial.hermite_e.hermegauss(8)
    p = np.outer(w, w).ravel() / w.sum() ** 2
    return np.array([[a, b] for a in x for b in x]), p


ACTIVATIONS = {
    "erf": (lambda z: jax.lax.erf(z / 2**0.5), lambda z: erf(z / 2**0.5)),
    "tanh": (jnp.tanh, np.tanh),
    "sine": (jnp.sin, np.sin),
}


@pytest.mark.parametrize(("name", "sign"), [("erf", 1.0), ("tanh", -1.0), ("sine", 1.0)])
def test_a_neuron_splits_where_the_loss_has_a_negative_curvature_along_copies(name, sign):
    """Two teachers, added (Saad and Solla 1995) or subtracted: the split matrix is E[r a g''(w x) x x^T], negated."""
    jax_activation, activation = ACTIVATIONS[name]
    X, p = hermite_inputs()
    y = activation(X[:, 0]) + sign * 0.8 * activation(X[:, 1])
    start = least_squares(lambda t: p**0.5 * (t[0] * activation(X @ t[1:]) - y), [1.0, 0.8, 0.5 * sign]).x
    data, one = (X, np.stack([y, p * len(p)], 1)), np.zeros(1, int)
    network = UnitNetwork.of(neuron(jax_activation), data, lambda f, t: t[1] * half_square(f, t[0]), NEURON, 1, 0)
    narrow = network.stationary_near(start[None], one, minimum=True)
    assert narrow is not None
    fit = narrow.thetas[0]
    z, step = X @ fit[1:], 1e-4
    bend = (activation(z + step) - 2 * activation(z) + activation(z - step)) / step**2
    residual = y - fit[0] * activation(z)
    lowest = np.linalg.eigvalsh(-X.T @ (X * (p * residual * fit[0] * bend)[:, None]))[0]
    found = embed(network, fit[None], one, 2, 1e-9, 0)
    assert found.stationary
    assert abs(lowest) > 1e-3
    assert (found.split_curvature < -1e-6) == (lowest < 0)
    assert found.saddle == (lowest < 0 or found.descends)


def contrastive(B, y):
    """The loss of linear Barlow twins and of spectral contrastive learning, which is 0 at the origin."""
    return -jnp.trace(jnp.diag(jnp.array([2.0, 1.0])) @ B) + jnp.sum(B**2) / 2


def test_a_loss_of_zero_at_the_origin_has_stages():
    data, unit = (np.zeros((1, 1)), np.zeros(1)), lambda theta, x: jnp.outer(theta, theta)
    learned = unit_learning(unit, data, contrastive, parameters=np.zeros(2))
    np.testing.assert_allclose(learned.staircase.times, [0.25, 0.5], rtol=1e-9)
    np.testing.assert_allclose(learned.staircase.losses, [0.0, -2.0, -2.5], atol=1e-9)
    ladder = width_ladder(unit, data, contrastive, range(3), parameters=np.zeros(2))
    np.testing.assert_allclose(ladder.losses, [0.0, -2.0, -2.5], atol=1e-9)


def falling(f, cubic):
    return -f - cubic * f**3


@pytest.mark.parametrize("cubic", [0.0, 1 / 3])
def test_blow_up_in_finite_time_has_its_name(cubic):
    """For abc from a = b = c = alpha / 2: da/dt = a^2 until T = 2, up to order alpha."""
    data, weights = (np.ones(1), np.full(1, cubic)), np.full((1, 3), 0.5)
    learned = unit_learning(product, data, falling, parameters=np.zeros(3), weights=weights)
    assert learned.status.value == "no_minimum"
    assert "blow up in finite time" in learned.message
    np.testing.assert_allclose(learned.end, 2, rtol=1e-8)
    run = unit_flow(
        product, data, falling, weights, degree=3.0, log_scale=np.log(1e-4), until=5.0, tolerance=1e-6, throw=False
    )
    assert run.status.code == "diverged"
    (time,) = re.findall("blow up in finite time, at T = ([0-9.]+):", run.status.sentence)
    np.testing.assert_allclose(float(time), 2, atol=1e-3)
