"""The stabilised explicit solver alone: stability, order and control of steps on systems with known solutions."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.linalg import expm

from saddlescope.numerics import chebyshev
from saddlescope.numerics.chebyshev import Slopes
from saddlescope.numerics.interpolants import CubicInterpolants

EIGENVALUES = np.array([[-1e5, -40.0, -1.0], [-3.0, -2.0, 0.5], [-1e3, 0.0, -0.1]])
START = np.array([[1.0, -2.0, 3.0], [1.0, 1.0, 1.0], [-1.0, 2.0, 0.5]])


def _matrices():
    """Symmetric matrices with these eigenvalues."""
    turns = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3, 3)))[0]
    return turns @ (EIGENVALUES[:, :, None] * turns.transpose(0, 2, 1))


def _finish(matrices, start, tolerance, until=2.0, slope=None, most=10**6):
    """Follow y' = A y to the end; return the systems, the rounds, and each system's completed steps."""
    radius = jnp.asarray(np.abs(np.linalg.eigvalsh(matrices)).max(axis=1))

    def slopes(y):
        return jnp.einsum("nij,nj->ni", matrices, y) if slope is None else slope(y)

    @jax.jit
    def turn(steps):
        steps, at_stage = chebyshev.advance(steps, slopes, most)
        return chebyshev.complete(steps, Slopes(at_stage, radius, 0 * radius), until, tolerance)

    start = jnp.asarray(start)
    steps = chebyshev.begin(start, Slopes(slopes(start), radius, 0 * radius), until, tolerance)
    taken, rounds = [[] for _ in start], 0
    while np.any((np.asarray(steps.h) > 0) & (np.asarray(steps.evaluations) < most)):
        before = steps
        steps, completed = turn(steps)
        rounds += 1
        for row in np.flatnonzero(completed):
            taken[row].append((before, steps))
        assert rounds < 200_000
    return steps, rounds, taken


def _interpolants(row, taken):
    ends = [[np.asarray(values)[row] for values in (a.t, b.t, a.y, b.y, a.now.slope, b.now.slope)] for a, b in taken]
    start, end, *both = (np.array(column) for column in zip(*ends, strict=True))
    return _cubics(np.full(len(end), row), start, end, both)


def _cubics(system, start, end, both):
    """Cubics from states before and after, and slopes before and after."""
    before, after, slope_before, slope_after = both
    return CubicInterpolants(system, start, end, before, after, slope_before=slope_before, slope_after=slope_after)


def test_stiff_symmetric_systems_against_the_matrix_exponential():
    matrices, errors = _matrices(), []
    for tolerance in (1e-4, 1e-6):
        steps, _, taken = _finish(matrices, START, tolerance)
        np.testing.assert_array_equal(steps.t, 2.0)
        assert not np.any(steps.stuck)
        assert int(steps.evaluations[0]) < 20_000  # a method of four stages needs 7e4 for stability alone
        worst = 0.0
        for row, matrix in enumerate(matrices):
            pieces = _interpolants(row, taken[row])
            np.testing.assert_array_equal(pieces.start[1:], pieces.end[:-1])
            assert (pieces.start[0], pieces.end[-1]) == (0, 2)
            for s in (-0.5, 0.0):
                states = pieces.at(np.full(len(pieces.end), s))
                exact = [expm(matrix * time) @ START[row] for time in pieces.end + s * (pieces.end - pieces.start)]
                worst = max(worst, float(np.abs(states - exact).max()))
        errors.append(worst)
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 8  # of second order: 10^(-2 * 2/3) is 1/21


def test_evaluations_grow_with_the_square_root_of_the_stiffness():
    counts = []
    for stiffness in (1e3, 1e5):
        steps, _, _ = _finish(np.diag([-stiffness, -1.0])[None], np.array([[0.0, 1.0]]), 1e-5)
        counts.append(float(steps.evaluations[0]))
    assert 5 < counts[1] / counts[0] < 15


def test_each_system_takes_the_steps_that_it_takes_alone():
    matrices = _matrices()
    together, rounds, taken = _finish(matrices, START, 1e-5)
    assert rounds < sum(map(len, taken))  # some complete their steps together
    for row in range(3):
        alone, _, _ = _finish(matrices[[row]], START[[row]], 1e-5)
        np.testing.assert_allclose(alone.y[0], together.y[row], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("most", [1, 7, 100])
def test_evaluations_are_limited_for_each_system(most):
    steps, _, taken = _finish(_matrices(), START, 1e-5, most=most)
    np.testing.assert_array_equal(steps.evaluations, most)
    for row, own in enumerate(taken):
        ends = [float(after.t[row]) for _, after in own]
        assert float(steps.t[row]) == (ends[-1] if ends else 0.0) < 2


@pytest.mark.parametrize("stages", [2, 3, 5, 40, 399, 400])
def test_a_step_has_its_stability_polynomial(stages):
    """P(z) = 1 - b T(w0) + b T(w0 + w1 z), of second order, and below 1 on all of the negative axis that is used."""
    with mpmath.workdps(30):
        T = partial(mpmath.chebyt, stages)
        w0 = 1 + mpmath.mpf(2) / 13 / stages**2
        slope, curvature = mpmath.diff(T, w0), mpmath.diff(T, w0, 2)
        w1, b = slope / curvature, curvature / slope**2
    z = np.append(np.array([-1e-3, -0.1, -1.0]), -np.linspace(0, 1, 20) * 0.65 * (stages**2 - 1))
    n = len(z)
    first, table = chebyshev._tables()
    begun = chebyshev.begin(jnp.ones((n, 1)), Slopes(jnp.asarray(z)[:, None], jnp.zeros(n), jnp.zeros(n)), 1.0, 1e-3)
    steps = begun._replace(
        h=jnp.ones(n),
        stage=jnp.asarray(first[stages] * z)[:, None],
        before=jnp.zeros((n, 1)),
        remaining=jnp.full(n, stages - 1),
        row=jnp.full(n, (stages - 1) * (stages - 2) // 2),
    )
    steps, _ = chebyshev.advance(steps, lambda y: jnp.asarray(z)[:, None] * y, 1000)
    assert np.all(steps.done)
    value = 1 + np.asarray(steps.stage)[:, 0]
    expected = [float(1 - b * T(w0) + b * T(w0 + w1 * mpmath.mpf(float(each)))) for each in z]
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-9)
    assert np.all(np.abs(value[3:]) <= 1 + 1e-9)
    np.testing.assert_allclose(value[:2], 1 + z[:2] + z[:2] ** 2 / 2, rtol=0, atol=np.abs(z[:2] ** 3).max() / 6)
    assert len(table) == 400 * 399 // 2


@pytest.mark.parametrize(("beyond", "finite"), [(np.nan, False), (1e30, True)])
def test_a_system_that_cannot_go_on_stops_and_says_what_it_saw(beyond, finite):
    matrices = np.zeros((2, 1, 1))

    def slope(y):
        return jnp.where((y > 0.5) & (jnp.arange(2)[:, None] == 0), beyond * jnp.sign(y), 1.0)

    steps, _, _ = _finish(matrices, np.zeros((2, 1)), 1e-6, until=1.0, slope=slope)
    np.testing.assert_array_equal(steps.stuck, [True, False])
    assert bool(steps.finite[0]) is finite
    np.testing.assert_allclose(steps.y[0, 0], 0.5, atol=1e-5)
    np.testing.assert_allclose(steps.t, [0.5, 1.0], atol=1e-5)
    np.testing.assert_allclose(steps.y[1, 0], 1.0, rtol=1e-12)


def test_a_stage_that_is_not_finite_is_seen_though_the_last_slope_is_finite():
    y = jnp.zeros((1, 1))
    begun = chebyshev.begin(y, Slopes(y + 1, jnp.ones(1), jnp.zeros(1)), 1.0, 1e-6)
    waits = begun._replace(h=jnp.full(1, 1e-300), stage=y + jnp.nan, remaining=jnp.full(1, -1))
    ended, completed = chebyshev.complete(waits, Slopes(y + 1, jnp.ones(1), jnp.zeros(1)), 1.0, 1e-6)
    assert not completed[0]
    assert ended.stuck[0]
    assert not ended.finite[0]


def test_cubics_are_exact_on_cubics():
    start, end = np.array([0.5, 2.0]), np.array([1.5, 2.25])
    cubic, slope = np.polynomial.Polynomial([1, -2, 0.5, 3]), np.polynomial.Polynomial([-2, 1, 9])
    columns = [np.stack([f(t), -f(t)], axis=1) for f in (cubic, slope) for t in (start, end)]
    pieces = _cubics(np.arange(2), start, end, columns)
    for s in (-1.0, -0.3, 0.0):
        times, at = end + s * (end - start), np.full(2, s)
        np.testing.assert_allclose(pieces.at(at), np.stack([cubic(times), -cubic(times)], 1), rtol=1e-12)
        np.testing.assert_allclose(pieces.entry(np.array([0, 1]))(at), [cubic(times[0]), -cubic(times[1])], rtol=1e-12)
