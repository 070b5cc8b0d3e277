"""The rank-one optimum against exact values, brute force, and networks of rank one that are not one neuron."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from problems import alternating_circle
from saddlescope.theory.escape.rank_one import rank_one_escape_speed
from saddlescope.theory.escape.speed import escape_speed


@pytest.mark.parametrize("samples", [4, 8, 12, 16, 20])
def test_circles_whose_number_of_points_four_divides_have_the_tangent(samples):
    found = rank_one_escape_speed(*alternating_circle(samples))
    assert_allclose([found.lower, found.upper], np.tan(np.pi / samples), atol=1e-12)


@pytest.mark.parametrize("samples", [6, 10, 14, 18])
def test_the_other_even_circles_have_no_rank_one_escape(samples):
    found = rank_one_escape_speed(*alternating_circle(samples))
    assert_allclose([found.lower, found.upper], 0.0, atol=1e-12)


@pytest.mark.parametrize("case", range(20))
def test_it_is_the_best_neuron_of_a_fine_circle(case):
    rng = np.random.default_rng(case)
    samples, outputs = int(rng.integers(1, 12)), int(rng.integers(1, 4))
    X, G = rng.normal(size=(2, samples)), rng.normal(size=(outputs, samples))
    X[:, rng.random(samples) < 0.3] = X[:, [0]]  # repeated, antipodal and collinear inputs
    X[:, rng.random(samples) < 0.3] *= -1
    found = rank_one_escape_speed(X.T, G.T, depth=2 + case % 4)
    angle = np.linspace(0, 2 * np.pi, 20001)
    fine = np.linalg.norm(np.maximum(np.stack([np.cos(angle), np.sin(angle)], 1) @ X, 0) @ G.T, axis=1).max()
    assert fine <= found.upper
    assert_allclose(found.lower, found.upper, rtol=1e-12, atol=1e-12)
    assert_allclose(fine, found.upper, rtol=1e-3)
    assert_allclose(escape_speed(found.weights, X.T, G.T), found.lower, rtol=1e-15)
    assert_allclose(sum(np.sum(w**2) for w in found.weights), 2 + case % 4)


def test_more_dimensions_and_one_are_reduced_to_the_plane():
    rng = np.random.default_rng(7)
    X, G = rng.normal(size=(2, 6)), rng.normal(size=(3, 6))
    flat = rank_one_escape_speed(X.T, G.T)
    tall = rank_one_escape_speed((np.linalg.qr(rng.normal(size=(5, 2)))[0] @ X).T, G.T)
    assert_allclose([tall.lower, tall.upper], [flat.lower, flat.upper], rtol=1e-12)
    assert tall.weights[0].shape == (1, 5)
    line = rank_one_escape_speed(X[:1].T, G.T)
    assert_allclose(line.lower, max(np.linalg.norm(G @ np.maximum(sign * X[0], 0)) for sign in (1, -1)), rtol=1e-13)
    one = rank_one_escape_speed(X[:, :1].T, G[:, :1].T)
    assert_allclose(one.lower, np.linalg.norm(X[:, 0]) * np.linalg.norm(G[:, 0]))


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_networks_of_rank_one_layers_never_exceed_it_though_they_are_not_one_neuron(depth):
    rng = np.random.default_rng(depth)
    X, G = rng.normal(size=(2, 9)), rng.normal(size=(1, 9))
    best = rank_one_escape_speed(X.T, G.T)
    W1 = np.array([[0.6, 0.8], [-0.6, -0.8]]) / np.sqrt(2)
    seen = np.maximum(W1 @ X, 0).sum(0) / np.sqrt(2)
    assert_allclose(seen, np.abs(X.T @ [0.6, 0.8]) / 2)  # not u relu(v.x), as the proof of Example 1 has it

    sizes = [(3, 2), *[(3, 3)] * (depth - 2), (1, 3)]

    def minus_speed(flat):
        hidden, at = X, 0
        for layer, (rows, columns) in enumerate(sizes, 1):
            left, right = flat[at : at + rows], flat[at + rows : at + rows + columns]
            hidden = np.outer(left, right @ hidden) / np.sqrt(left @ left * (right @ right))
            hidden = hidden if layer == depth else np.maximum(hidden, 0)
            at += rows + columns
        return float(np.sum(G * hidden))

    starts = rng.normal(size=(8, sum(map(sum, sizes))))
    speeds = [-minimize(minus_speed, start, method="BFGS", options={"maxiter": 50}).fun for start in starts]
    assert max(speeds) <= best.upper
    assert max(speeds) > 0.98 * best.lower  # the search comes near, so that the bound is put to the test
