"""Deeper networks are never slower, have rank one from layer L - 1 on, and ReLU does nothing from layer L on."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from problems import alternating_circle
from saddlescope.theory.escape.certificate import certified_escape_speed
from saddlescope.theory.escape.deeper_network import deepen
from saddlescope.theory.escape.speed import escape_speed, on_sphere


def fast_network(rng, depth):
    """A random network with a positive speed, on its sphere, and its data."""
    widths = rng.integers(1, 7, depth + 1)
    X, G = rng.normal(size=(widths[0], 8)), rng.normal(size=(widths[-1], 8))
    while True:
        weights = on_sphere([rng.normal(size=(out, into)) for into, out in itertools.pairwise(widths)])
        if escape_speed(weights, X.T, G.T) > 1e-12:
            return weights, X, G


@pytest.mark.parametrize("depth", [2, 3, 5, 9, 16])
def test_a_deeper_network_is_at_least_as_fast_and_rank_one(depth):
    rng = np.random.default_rng(depth)
    for _ in range(10):
        weights, X, G = fast_network(rng, depth)
        speed, more = escape_speed(weights, X.T, G.T), int(rng.integers(0, 4))
        deeper = deepen(weights, X.T, G.T, depth=depth + more)
        assert len(deeper) == depth + more
        assert_allclose(sum(np.sum(w**2) for w in deeper), depth + more, rtol=1e-12)
        assert escape_speed(deeper, X.T, G.T) >= speed * (1 - 1e-12)
        hidden = X
        for layer, weight in enumerate(deeper, 1):
            before = weight @ hidden
            hidden = np.maximum(before, 0)
            if layer >= depth - 1:
                assert np.linalg.matrix_rank(weight, tol=1e-12) == 1
            if depth <= layer < depth + more:
                assert np.array_equal(before, hidden)
            if layer <= depth - 2:
                ratio = weight / weights[layer - 1]
                assert_allclose(ratio, ratio.flat[0])


def test_one_neuron_of_the_best_rate_takes_the_place_of_a_mixture():
    X, G = np.eye(2), np.array([[-3.0, -1.0]])
    weights = on_sphere((np.eye(2), np.array([[1.0, 1.0]])))  # half of the norm on the slow neuron
    assert_allclose(escape_speed(weights, X.T, G.T), 2.0)
    assert_allclose(escape_speed(deepen(weights, X.T, G.T, depth=5), X.T, G.T), 3.0, rtol=1e-12)


def test_an_optimal_network_only_keeps_its_speed_when_made_deeper():
    X, G = alternating_circle(8)
    best = certified_escape_speed(X, G)
    for depth in (3, 4, 8):
        assert_allclose(escape_speed(deepen(best.weights, X, G, depth=depth), X, G), 0.5, rtol=1e-12)


def test_weights_of_any_norm_are_brought_to_the_sphere_first():
    weights, X, G = fast_network(np.random.default_rng(3), 4)
    for one, other in zip(
        deepen(weights, X.T, G.T, depth=6), deepen([1e9 * w for w in weights], X.T, G.T, depth=6), strict=True
    ):
        assert_allclose(one, other, rtol=1e-12)
