"""Escape directions: laws of the descent, and what polishing promises, against certified optima."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.problems import CIRCLE_OPTIMUM, alternating_circle

from saddlescope._shared.errors import InputError
from saddlescope.models.deep import LayeredLoss, layered_output
from saddlescope.theory.escape.clarke_subgradient import clarke_residual
from saddlescope.theory.escape.column_generation import column_generation
from saddlescope.theory.escape.directions import escape_directions, gradient_at_zero
from saddlescope.theory.escape.network_reduction import collapse, expand, reduce
from saddlescope.theory.escape.newton import refined
from saddlescope.theory.escape.speed import escape_speed, on_sphere
from saddlescope.theory.escape.sphere_descent import DECAY, MOMENTUM, sphere_descent

X, G = (data.T for data in alternating_circle(8))


def normal(rng, widths, starts):
    return tuple(rng.normal(size=(starts, out, into)) for into, out in pairwise(widths))


def slow_descent(weights, X, G, steps, rate):
    """The update rule as it is written down, by automatic differentiation."""
    depth = len(weights)
    theta = [jnp.asarray(w) for w in on_sphere(weights)]
    velocity = [jnp.zeros_like(w) for w in theta]
    slope = jax.jit(jax.grad(lambda w: jnp.sum(G * layered_output(tuple(w), X.T).T)))

    def dot(a, b):
        return sum(float(jnp.sum(x * y)) for x, y in zip(a, b, strict=True))

    for k in range(steps):
        g = slope(theta)
        s, n = -dot(g, theta) / depth, np.sqrt(dot(g, g) / depth)
        velocity = [MOMENTUM * m - (a + s * t) / n for m, a, t in zip(velocity, g, theta, strict=True)]
        along = dot(velocity, theta) / depth
        velocity = [m - along * t for m, t in zip(velocity, theta, strict=True)]
        theta = [t + rate * DECAY ** (k / steps) * m for t, m in zip(theta, velocity, strict=True)]
        size = np.sqrt(depth / dot(theta, theta))
        theta = [size * t for t in theta]
    return theta


@pytest.mark.parametrize("depth", [2, 4])
def test_descent_is_the_rule_written_down(depth):
    rng = np.random.default_rng(depth)
    inputs, gradients = rng.normal(size=(3, 7)), rng.normal(size=(2, 7))
    weights = normal(rng, [3, *[5] * (depth - 1), 2], 3)
    found, speeds = sphere_descent(
        weights, inputs.T, gradients.T, steps=40, learning_rate=0.03, record=np.array([20, 40])
    )
    for start in range(3):
        slow = slow_descent([w[start] for w in weights], inputs, gradients, 40, 0.03)
        for one, other in zip(found, slow, strict=True):
            np.testing.assert_allclose(one[start], other, atol=1e-12)
        assert speeds[start, -1] == pytest.approx(escape_speed(slow, inputs.T, gradients.T), rel=1e-10)


def test_padding_and_scale_change_nothing_and_padding_stays_zero():
    rng = np.random.default_rng(0)
    weights = normal(rng, [2, 3, 3, 1], 4)
    padded = tuple(np.zeros((4, *shape)) for shape in ((7, 2), (7, 7), (1, 7)))
    for place, weight in zip(padded, weights, strict=True):
        place[:, : weight.shape[1], : weight.shape[2]] = weight
    descent = {"steps": 100, "learning_rate": 0.03, "record": np.array([100])}
    plain, speeds = sphere_descent(weights, X.T, G.T, **descent)
    wide, same = sphere_descent(padded, 1e-30 * X.T, 1e20 * G.T, **descent)
    np.testing.assert_allclose(same, 1e-10 * speeds, rtol=1e-9)
    for one, other in zip(plain, wide, strict=True):
        np.testing.assert_allclose(other[:, : one.shape[1], : one.shape[2]], one, atol=1e-10)
    assert not wide[0][:, 3:].any()
    assert not wide[1][:, 3:].any()
    assert not wide[1][:, :, 3:].any()
    assert not wide[2][:, :, 3:].any()


@pytest.fixture(scope="module")
def found():
    return escape_directions(X.T, G.T, depth=3, widths=(1, 8), num_starts=24, steps=2000, seed=3)


def test_polished_directions_of_example_1_are_exact(found):
    at_optimum = found.curves[:, -1] > 0.5 - 1e-5
    assert at_optimum.sum() >= 3
    np.testing.assert_allclose(found.speeds[at_optimum], 0.5, atol=1e-13)
    assert found.residuals[found.converged].max() < 1e-12
    assert found.converged[found.speeds > 0].all()
    assert found.speeds.max() < 0.5 + 1e-12
    assert found.speeds[found.widths == 1].max() == pytest.approx(2**0.5 - 1, abs=1e-13)
    best = found.direction(found.best)
    assert sum(np.sum(w**2) for w in best) == pytest.approx(3, abs=1e-12)
    assert clarke_residual(best, X, G) < 1e-12
    assert found.ranks[found.best].tolist() == [2, 1, 1]
    assert not any(w[found.widths == 1][:, 1:].any() for w in found.weights[:2])


@pytest.mark.parametrize("depth", [4, 8])
def test_deeper_directions_are_collapsed_polished_and_expanded(depth):
    rng = np.random.default_rng(0)
    (first, second, last), middle = CIRCLE_OPTIMUM, [np.eye(1)] * (depth - 3)
    shaken = [w + 1e-5 * rng.normal(size=w.shape) for w in (first, second, *middle, last)]
    done = refined(tuple(shaken), X, G)
    assert done is not None
    assert escape_speed(done[0], X.T, G.T) == pytest.approx(0.5, abs=1e-13)
    assert clarke_residual(done[0], X, G) < 1e-12


def test_polish_rejects_what_is_near_no_escape_direction():
    rng = np.random.default_rng(1)
    weights = tuple(rng.normal(size=shape) for shape in ((4, 2), (4, 4), (1, 4)))
    done = refined(weights, X, G)
    assert done is None or clarke_residual(done[0], X, G) < 1e-12
    first, second, last = CIRCLE_OPTIMUM
    assert refined((first, second, -last), X, G) is None  # speed -1/2


def test_reducing_and_expanding_keep_the_function():
    rng = np.random.default_rng(2)
    first, second, last = CIRCLE_OPTIMUM
    doubled = (
        np.vstack([first, first[:1], rng.normal(size=(1, 2))]),
        np.hstack([second, second[:, :1], [[0.0]]]),
        last,
    )
    small = reduce(doubled, X, 1e-3)
    assert [w.shape for w in small] == [(4, 2), (1, 4), (1, 1)]
    before, after = (
        np.asarray(layered_output(tuple(jnp.asarray(w) for w in net), jnp.asarray(X.T))) for net in (doubled, small)
    )
    np.testing.assert_allclose(after / np.linalg.norm(after), before / np.linalg.norm(before), atol=1e-14)
    deep = (small[0], small[1], np.eye(1), small[2])
    shallow, kept = collapse(deep)
    assert kept == (0, 1, 3)
    for one, other in zip(expand(shallow, kept, deep), deep, strict=True):
        np.testing.assert_array_equal(one, other)


def _four(steps):
    return np.arange(1, 5) * (steps // 4)


@pytest.mark.parametrize("samples", [8, pytest.param(12, marks=pytest.mark.slow)])
def test_convex_steps_reach_the_certified_optimum_from_where_descent_is_stuck(samples):
    data = alternating_circle(samples)
    stuck = escape_directions(*data, depth=3, widths=8, num_starts=4, steps=200, record=_four(200), seed=1)
    better = column_generation(stuck, *data)
    assert (better.speeds >= stuck.speeds - 1e-12).all()
    assert better.speeds.max() == pytest.approx(1 / (1 + 1 / np.tan(2 * np.pi / samples)), abs=1e-12)
    assert better.residuals[better.best] < 1e-12


@pytest.mark.slow
def test_convex_steps_work_in_three_dimensions_with_two_outputs_at_depth_four():
    rng = np.random.default_rng(4)
    inputs, gradients = rng.normal(size=(3, 6)), rng.normal(size=(2, 6))
    plain = escape_directions(inputs.T, gradients.T, depth=4, widths=6, num_starts=2, steps=400, record=_four(400))
    better = column_generation(plain, inputs.T, gradients.T)
    assert (better.speeds >= plain.speeds * (1 - 1e-4)).all()
    for start in range(2):
        assert sum(np.sum(w**2) for w in better.direction(start)) == pytest.approx(4)


def test_the_gradient_comes_from_any_cost():
    targets = np.random.default_rng(5).normal(size=(6, 2))
    loss = LayeredLoss(jnp.ones((6, 3)), jnp.asarray(targets))
    found = gradient_at_zero(lambda outputs: jnp.sum((outputs - targets) ** 2) / 12, samples=6, outputs=2)
    np.testing.assert_allclose(found, -targets / 6, rtol=1e-14)
    np.testing.assert_allclose(loss.gradient_at_origin(), found, rtol=1e-14)


def test_two_runs_are_the_same_and_two_seeds_are_not():
    one, same, other = (
        escape_directions(X.T, G.T, depth=2, widths=3, num_starts=2, steps=20, refine=False, seed=seed)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.speeds, same.speeds)
    assert not np.allclose(one.speeds, other.speeds)


def test_a_schedule_records_at_any_steps_and_reports():
    parts = []
    given = {"depth": 2, "widths": 3, "num_starts": 2, "steps": 20, "refine": False}
    number = escape_directions(X.T, G.T, **given, learning_rate=0.01, record=np.array([3, 20]))
    schedule = escape_directions(
        X.T, G.T, **given, learning_rate=lambda step: 0.01 * DECAY ** (step / 20), record=np.array([3]),
        report=lambda fraction, note: parts.append(fraction),
    )  # fmt: skip
    np.testing.assert_allclose(schedule.speeds, number.speeds, rtol=1e-12)
    np.testing.assert_allclose(schedule.curves[:, 0], number.curves[:, 0], rtol=1e-12)
    assert schedule.curves.shape == (2, 1)
    assert schedule.steps.tolist() == [3]
    assert parts == sorted(parts)
    assert parts[-1] == 1.0
    few = escape_directions(X.T, G.T, **given)
    assert few.steps.tolist() == list(range(1, 21))


def test_depth_two_cannot_be_improved():
    found = escape_directions(X.T, G.T, depth=2, widths=2, num_starts=1, steps=10, refine=False)
    with pytest.raises(InputError, match="depth of at least 3"):
        column_generation(found, X.T, G.T)
