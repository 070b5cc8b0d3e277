"""The certified speed at depth 3 against known values, cvxpy over all signs, descent, and its invariances."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from problems import alternating_circle
from saddlescope.theory.escape.certificate import certified_escape_speed
from saddlescope.theory.escape.plane_inputs import Arcs
from saddlescope.theory.escape.rank_one import rank_one_escape_speed
from saddlescope.theory.escape.speed import escape_speed

# By an independent trial run in cvxpy; to ten digits, for N = 4, 6, 8, 10, 12 (and 16).
CIRCLES = {4: 1.0, 6: 2 * np.sqrt(3) - 3, 8: 0.5, 10: 0.3012651081, 12: 0.3660254038}


@pytest.mark.parametrize(("samples", "optimum"), [*CIRCLES.items(), pytest.param(16, 1 - 1 / np.sqrt(2))])
def test_circles_have_their_known_optima(samples, optimum):
    X, G = alternating_circle(samples)
    found = certified_escape_speed(X, G)
    assert found.lower <= optimum + 6e-11
    assert found.upper >= optimum - 6e-11
    assert found.upper - found.lower < 1e-9
    assert escape_speed(found.weights, X, G) == found.lower
    assert_allclose([np.sum(w**2) for w in found.weights], 1.0, rtol=1e-12)


def test_the_witness_of_example_1_has_ranks_2_1_1():
    weights = certified_escape_speed(*alternating_circle(8)).weights
    assert [np.linalg.matrix_rank(w, tol=1e-9) for w in weights] == [2, 1, 1]
    assert weights[0].shape == (4, 2)


def by_all_signs(X, G):
    """The optimum by one convex program per sign pattern, over masses at a fine circle of directions: a lower bound.

    Every direction at which an arc ends is among them, and 720 more: what is lost in between is quadratic in the step.
    """
    angle = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    units = X / np.linalg.norm(X, axis=0)
    u = np.concatenate([Arcs.of(units).ends, np.stack([np.cos(angle), np.sin(angle)], 1)])
    h = np.maximum(u @ X, 0)
    best = 0.0
    for sign in (-1.0, 1.0):
        c = sign * G[0]
        rising, falling = np.flatnonzero(c > 0), np.flatnonzero(c < 0)
        chosen, a = cp.Parameter(len(rising), nonneg=True), cp.Variable(len(u))
        g = h.T @ a
        gain = chosen @ cp.multiply(c[rising], g[rising]) if len(rising) else 0.0
        cost = -c[falling] @ cp.pos(g[falling]) if len(falling) else 0.0
        problem = cp.Problem(cp.Maximize(gain - cost), [cp.norm1(a) <= 1])
        for pattern in itertools.product((0.0, 1.0), repeat=len(rising)):
            chosen.value = np.array(pattern)
            best = max(best, problem.solve(solver=cp.CLARABEL))
    return best


@pytest.mark.parametrize(("case", "samples"), [(0, 4), (1, 5), (2, 6), (3, 7), (4, 6)])
def test_it_is_the_best_of_all_sign_patterns(case, samples):
    rng = np.random.default_rng(case)
    angle = np.sort(rng.uniform(0, 2 * np.pi, samples))
    X = np.stack([np.cos(angle), np.sin(angle)]) * rng.uniform(0.5, 2, samples)
    G = (np.arange(samples) % 2 * 2 - 1) * rng.uniform(0.5, 2, (1, samples))  # alternating: hard
    found = certified_escape_speed(X.T, G.T)
    assert found.upper - found.lower < 1e-9
    expected = by_all_signs(X, G)
    assert expected <= found.upper + 1e-7
    assert_allclose(expected, found.upper, rtol=1e-4)


@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_of_one_sign_have_a_neuron_as_optimum(sign):
    rng = np.random.default_rng(8)
    for _ in range(5):
        X, G = rng.normal(size=(2, 9)), sign * rng.uniform(0.1, 2, (1, 9))
        assert_allclose(certified_escape_speed(X.T, G.T).upper, rank_one_escape_speed(X.T, G.T).lower, rtol=1e-10)


@pytest.mark.parametrize("case", range(3))
def test_no_network_of_depth_3_exceeds_it(case):
    rng = np.random.default_rng(100 + case)
    X, G = rng.normal(size=(2, 6)), rng.normal(size=(1, 6))
    found = certified_escape_speed(X.T, G.T)

    def minus_speed(flat):
        W1, W2, W3 = flat[:8].reshape(4, 2), flat[8:20].reshape(3, 4), flat[20:].reshape(1, 3)
        return float(np.sum(G * (W3 @ np.maximum(W2 @ np.maximum(W1 @ X, 0), 0)))) * (3 / (flat @ flat)) ** 1.5

    best = max(
        -minimize(minus_speed, rng.normal(size=23), method="BFGS", options={"maxiter": 50}).fun for _ in range(4)
    )
    assert best <= found.upper
    assert best > 0.8 * found.lower


DEGENERATE = {
    "one input": ([[3.0], [-1.0]], [[2.0]]),
    "repeated": ([[1, 1, 2, -1], [0, 0, 1, 1]], [[1, 2, -1, 1]]),
    "positive multiples": ([[1, 2, 0, -1], [1, 2, 1, 1]], [[1, -2, -1, 1]]),
    "antipodes": ([[1, -1, 0, 0], [0, 0, 1, -1]], [[1, 1, -1, -1]]),
    "collinear": ([[1, -2, 3], [2, -4, 6]], [[1, 1, -1]]),
    "zero input": ([[0, 1, 0], [0, 0, 1]], [[5, 1, -1]]),
    "almost alike": ([[1, 1, 0.3], [0, 1e-13, 1]], [[1, 1, -1]]),
    "thin arcs": ([[1, 1, 0.3, -1], [0, 1e-10, 1, 1e-11]], [[1, -1, 0.5, 1]]),
    "half a plane": ([[1, 2, 3, 1], [0, 1, -1, 0.3]], [[1, -1, 1, -1]]),
    "one sign": ([[1, 0, -1], [0, 1, -1]], [[1, 1, 1]]),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data_are_certified_too(name):
    X, G = (np.array(a, float) for a in DEGENERATE[name])
    found = certified_escape_speed(X.T, G.T)
    assert 0 <= found.upper - found.lower < 1e-9
    assert by_all_signs(X[:, X.any(axis=0)], G[:, X.any(axis=0)]) == pytest.approx(found.upper, rel=2e-4, abs=1e-7)


def test_gradients_that_cancel_leave_speed_zero():
    found = certified_escape_speed([[1.0, 2.0], [1.0, 2.0]], [[1.0], [-1.0]])
    assert found.lower == pytest.approx(0, abs=1e-14)
    assert 0 <= found.upper < 1e-13


def test_rotations_scales_the_sign_of_g_and_higher_dimensions_change_nothing():
    rng = np.random.default_rng(5)
    X, G = alternating_circle(8)
    X = X * rng.uniform(0.7, 1.5, 8)[:, None]
    base = certified_escape_speed(X, G)
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    for inputs, gradients, factor in (
        (X @ turn.T, G, 1),
        (1e8 * X, 1e-3 * G, 1e5),
        (X, -G, 1),
        (X[::-1], G[::-1], 1),
        (X @ np.linalg.qr(rng.normal(size=(4, 2)))[0].T, G, 1),
    ):
        found = certified_escape_speed(inputs, gradients)
        assert_allclose([found.lower, found.upper], factor * np.array([base.lower, base.upper]), rtol=1e-9)


def test_bounds_hold_when_it_is_stopped_early():
    X, G = alternating_circle(12)
    parts = []
    found = certified_escape_speed(X, G, max_programs=20, report=lambda fraction, note: parts.append(fraction))
    assert 20 <= found.programs <= 22
    assert parts == sorted(parts)
    assert parts[-1] == 1.0
    assert found.lower <= CIRCLES[12] <= found.upper
    assert found.upper - found.lower > 0.1
