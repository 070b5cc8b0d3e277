"""The inequality on hundreds of networks, tight ones too, and what follows from it."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from problems import alternating_circle
from saddlescope.papers.deep_relu.shared.network_ensembles import draw_networks
from saddlescope.theory.escape.bounds import (
    first_layer_with_content,
    layer_deficits,
    layer_ratios,
    low_rank_activations,
    optimal_layer_bound,
    speed_deficit,
)
from saddlescope.theory.escape.speed import escape_speed


def networks(count, seed):
    """Yield random networks, and some near equality, of depth 2 to 16 with a positive speed, X, and G."""
    for kind, depth in itertools.product(("random", "extreme"), (2, 4, 9, 16)):
        yield from draw_networks(kind, depth=depth, count=count, seed=seed)


def test_the_deficits_of_the_layers_are_at_most_that_of_the_speed():
    used, deep = [], []
    for weights, X, G in networks(50, seed=0):
        available = speed_deficit(X, G, speed=escape_speed(weights, X, G))
        spent = layer_deficits(weights, X, G)
        assert np.all(spent.rank >= 0)
        assert np.all(spent.relu >= 0)
        assert spent.total <= available + 1e-12 * len(weights)
        used.append(spent.total / max(available, 1e-9))
        deep.append(min(np.sum(spent.rank > 0.1), np.sum(spent.relu > 0.1)) if used[-1] > 0.99 else 0)
    assert np.mean(np.array(used) > 0.99) > 0.1  # so that a factor too small on either side would be seen,
    assert max(deep) > 2  # in any of the terms


def test_the_inequality_is_an_equality_where_its_proof_is():
    # Orthonormal inputs; W_1 reads the one direction of largest |Zs|; all layers of one neuron.
    X, G = np.diag([3.0, 1.0]), np.array([[-3.0, 0.0]])
    weights = (np.array([[1.0, 0.0]]), np.eye(1), np.eye(1))
    spent = layer_deficits(weights, X.T, G.T)
    assert_allclose(spent.rank, [np.log(10 / 9), 0, 0], atol=1e-15)
    assert_allclose(spent.relu, [0, 0], atol=1e-15)
    assert_allclose(spent.total, speed_deficit(X.T, G.T, speed=escape_speed(weights, X.T, G.T)))


def test_the_terms_are_the_norms_by_hand():
    rng = np.random.default_rng(1)
    X, G = rng.normal(size=(3, 5)), rng.normal(size=(2, 5))
    weights = [rng.normal(size=s) for s in ((4, 3), (4, 4), (2, 4))]
    spent, ratios = layer_deficits(weights, X.T, G.T), layer_ratios(weights, X.T, G.T)
    Z1 = weights[0] @ X
    Z2 = weights[1] @ np.maximum(Z1, 0)
    after = [X, np.maximum(Z1, 0), np.maximum(Z2, 0)]
    fro, op = (lambda A: np.linalg.norm(A) ** 2), (lambda A: np.linalg.norm(A, 2) ** 2)
    assert_allclose(spent.rank, [np.log(fro(A) / op(A)) for A in after])
    assert_allclose(spent.relu, [np.log(fro(Z) / fro(np.maximum(Z, 0))) for Z in (Z1, Z2)])
    assert_allclose(ratios.weights, [1 - op(W) / fro(W) for W in weights])
    assert_allclose(ratios.activations, [1 - op(A) / fro(A) for A in after])
    assert_allclose(ratios.relu, [fro(np.minimum(Z, 0)) / fro(Z) for Z in (Z1, Z2)])
    scaled = layer_deficits([7 * weights[0], *weights[1:]], X.T, G.T)
    assert_allclose(scaled.rank, spent.rank)


def test_proposition_3_4_counts_enough_layers():
    for weights, X, G in networks(25, seed=2):
        speed, depth = escape_speed(weights, X, G), len(weights)
        tails = layer_ratios(weights, X, G).activations
        for share in (0.1, 0.5, 0.9, 1 / depth):
            bound, least = low_rank_activations(X, G, speed=speed, depth=depth, share=share)
            assert np.sum(tails <= bound + 1e-14) >= least


def test_of_the_hidden_layers_alone_proposition_3_4_may_miss_one():
    # All layers have rank one, but there are L - 1 hidden ones: with p L = 1/2, (1 - p) L asks for L.
    X, G = np.array([[1.0]]), np.array([[-1.0]])
    bound, least = low_rank_activations(X.T, G.T, speed=1.0, depth=3, share=1 / 6)
    assert (bound, least) == (0.0, 3)
    assert len(layer_ratios([np.eye(1)] * 3, X.T, G.T).activations[1:]) == 2


def test_theorem_3_1_is_vacuous_for_example_1_below_layer_115000():
    X, G = alternating_circle(8)
    first = first_layer_with_content(X, G, speed=0.5)
    assert first == pytest.approx(81 * (16 * np.sqrt(2 * np.log(16))) ** 2)
    assert 114_900 < first < 115_100
    assert optimal_layer_bound(X, G, speed=0.5, layer=int(first)) >= 1
    assert optimal_layer_bound(X, G, speed=0.5, layer=int(first) + 1) < 1
    assert optimal_layer_bound(X, G, speed=0.5, layer=100) == np.inf


def test_the_constant_is_below_10_only_near_the_largest_speed():
    X, G = np.array([[1.0]]), np.array([[1.0]])
    assert first_layer_with_content(X.T, G.T, speed=0.946) > 10 > first_layer_with_content(X.T, G.T, speed=0.947)
