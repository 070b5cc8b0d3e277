"""Gradient descent against a plain loop and gradient flow, and its reports on float64's limits."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests import problems, references
from tests.problems import LOG10

from saddlescope._shared.errors import InputError
from saddlescope.flow import DiagonalInit, ParameterInit, gradient_descent, gradient_flow, homogeneous_rate
from saddlescope.models import PopulationLoss, diagonal_linear_network

FEATURES, TEACHER = np.array(problems.RETURNING_FEATURES), np.array(problems.RETURNING_TEACHER)
LOSS = diagonal_linear_network(FEATURES, FEATURES @ TEACHER)
CURVATURE = 2 * FEATURES.T @ FEATURES / 3


def _start(digits):
    u, v = np.random.default_rng(0).standard_normal((2, 3))
    return DiagonalInit(u, v, -digits * LOG10)


def _gradient(beta):
    return CURVATURE @ (beta - TEACHER)


def test_steps_are_those_of_a_plain_loop():
    start = _start(1)
    run = gradient_descent(LOSS, start, steps=60, learning_rate=0.02, record=np.array([1, 7, 60]))
    slow = references.descent_of_products(_gradient, 0.1 * start.u, 0.1 * start.v, 0.02, 60)[[0, 1, 7, 60]]
    np.testing.assert_allclose(run.times, np.array([0, 1, 7, 60]) * 0.02 / LOG10, rtol=1e-14)
    u, v = run.parameters(run.times)
    np.testing.assert_allclose(u, slow[:, 0], rtol=1e-11)
    np.testing.assert_allclose(v, slow[:, 1], rtol=1e-11)
    np.testing.assert_allclose(run.beta, slow[:, 0] * slow[:, 1], rtol=1e-11)
    np.testing.assert_allclose(run.losses, [np.mean((FEATURES @ (b - TEACHER)) ** 2) for b in run.beta], rtol=1e-12)
    assert run.time_unit == "t / log(1/alpha)"
    assert run.evaluations.gradients == 61


def test_it_converges_to_gradient_flow_linearly_in_the_learning_rate():
    flow = gradient_flow(LOSS, _start(2), until=1.0, tolerance=1e-6)
    raw = 2 * LOG10
    errors = []
    for rate in (4e-3, 1e-3):
        steps = round(raw / rate)
        run = gradient_descent(LOSS, _start(2), steps=steps, learning_rate=rate)
        times = np.linspace(0, min(1.0, run.times[-1]), 20)
        errors.append(np.abs(run(times) - flow(times)).max())
    assert errors[0] > 1e-3
    np.testing.assert_allclose(errors[0] / errors[1], 4, rtol=0.2)


def test_the_loss_of_u2_minus_v2_is_reported():
    """At alpha = 1e-2 the invariant is conserved to the step's own error; at 1e-10 float64 has lost it."""
    kept, lost = (gradient_descent(LOSS, _start(digits), steps=20_000, learning_rate=1e-2) for digits in (2, 10))
    assert kept.conserved is not None
    assert kept.conserved < 0.5
    np.testing.assert_allclose(kept.beta[-1], TEACHER, atol=1e-1)
    assert lost.conserved is not None
    assert lost.conserved > 0.9
    assert lost.status.ok


def test_a_decaying_schedule_takes_the_steps_of_its_rates():
    run = gradient_descent(
        LOSS, _start(1), steps=40, learning_rate=lambda step: 0.03 * 0.5 ** (jnp.asarray(step, float) / 10)
    )
    rates, at = 0.03 * 0.5 ** (np.arange(40) / 10), _start(1)
    for rate in rates:
        at = gradient_descent(LOSS, at, steps=1, learning_rate=float(rate)).end
    np.testing.assert_allclose(run.parameters(run.times[-1:]), [w[None] for w in at.parameters()], rtol=1e-11)
    np.testing.assert_allclose(run.times, np.append(0.0, np.cumsum(rates)) / LOG10, rtol=1e-12)


def test_a_rate_that_depends_on_the_weights_adds_up_to_the_time():
    start = ParameterInit(np.array([0.5, -1.0]))
    run = gradient_descent(lambda w: jnp.sum(w**4), start, steps=20, learning_rate=homogeneous_rate(0.01, 4))
    squares = np.sum(run.values[:-1] ** 2, axis=1)
    np.testing.assert_allclose(np.diff(run.times), 0.01 / squares, rtol=1e-12)
    np.testing.assert_allclose(
        np.diff(run.values, axis=0), -0.01 / squares[:, None] * 4 * run.values[:-1] ** 3, rtol=1e-9
    )


def test_plain_parameters_of_any_shape():
    params = {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": np.array(0.5)}
    run = gradient_descent(
        lambda p: 0.5 * jnp.sum(p["w"] ** 2) + 2 * p["b"] ** 2, ParameterInit(params), steps=3, learning_rate=0.1
    )
    end = run.parameters(run.times[-1:])
    np.testing.assert_allclose(end["w"][0], 0.9**3 * params["w"], rtol=1e-14)
    np.testing.assert_allclose(end["b"][0], 0.6**3 * 0.5, rtol=1e-14)
    assert (run.time_unit, run.conserved) == ("t", None)
    np.testing.assert_allclose(run.times, 0.1 * np.arange(4))


def test_continuing_equals_going_straight_there():
    straight = gradient_descent(LOSS, _start(1), steps=200, learning_rate=0.01)
    first = gradient_descent(LOSS, _start(1), steps=80, learning_rate=0.01)
    second = gradient_descent(LOSS, first.end, steps=120, learning_rate=0.01)
    np.testing.assert_allclose(second.beta[-1], straight.beta[-1], rtol=1e-12)
    flow = gradient_flow(LOSS, first.end, until=0.0, tolerance=1e-6)
    np.testing.assert_allclose(flow.beta[0], first.beta[-1], rtol=1e-12)


def test_descent_goes_on_from_where_a_flow_ended():
    flow = gradient_flow(LOSS, _start(2), until=1.0, tolerance=1e-6)
    run = gradient_descent(LOSS, flow.end, steps=0, learning_rate=0.01)
    np.testing.assert_allclose(run.beta[0], flow.beta[-1], rtol=1e-9)


def test_crossings_lie_between_their_records():
    run = gradient_descent(LOSS, _start(1), steps=400, learning_rate=0.01, level=0.05)
    assert {(c.index, c.rising) for c in run.crossings} >= {(0, True), (1, True), (2, True)}
    for c in run.crossings:
        np.testing.assert_allclose(run(np.array([c.time]))[0, c.index], c.sign * 0.05, rtol=2e-2)


def test_weights_that_underflow_are_refused_with_gradient_flow_as_the_cure():
    with pytest.raises(InputError, match="gradient_flow"):
        gradient_descent(LOSS, _start(160), steps=1, learning_rate=0.1)
    gradient_descent(LOSS, _start(150), steps=1, learning_rate=0.1)


def test_a_learning_rate_past_the_edge_of_stability_is_refused():
    """Descent in W diverges beyond 2 / a_1."""
    strengths = np.array([4.0, 1.0, 0.25])
    loss, start = PopulationLoss(np.diag(strengths)), ParameterInit(np.random.default_rng(0).standard_normal((3, 3)))
    edge = 2 / strengths.max()
    below = gradient_descent(loss, start, steps=2000, learning_rate=0.9 * edge)
    assert below.losses[-1] < 1e-12
    with pytest.raises(InputError, match=f"learning_rate must be at most {edge:.6g}, .*settle at none"):
        gradient_descent(loss, start, steps=10, learning_rate=1.01 * edge)
