"""Observables of the bottleneck: against their definitions, by invariance, and at the zero matrix."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tolerances
from saddlescope.measure import bottleneck_rank, bulk_count, nonlinearity, second_ratio

DRAW = np.random.default_rng(0)
BATCH = DRAW.random((3, 4, 5))
Z = DRAW.standard_normal((3, 4, 7))


def test_ratios_are_those_of_a_matrix():
    for values, ratio in zip(BATCH.reshape(-1, 5), second_ratio(BATCH).ravel(), strict=True):
        first, second, *_ = sorted(values, reverse=True)
        assert ratio == pytest.approx(second / first, rel=tolerances.RANK)


def test_nonlinearity_is_the_part_removed_by_the_relu():
    taken = np.linalg.norm(np.maximum(Z, 0) - Z, axis=(1, 2)) / np.linalg.norm(Z, axis=(1, 2))
    np.testing.assert_allclose(nonlinearity(Z), taken, rtol=tolerances.RANK)
    assert nonlinearity(np.abs(Z[0])) == 0.0
    assert nonlinearity(-np.abs(Z[0])) == 1.0


@given(st.floats(1e-200, 1e200))
@settings(deadline=None)
def test_a_factor_changes_nothing(factor):
    np.testing.assert_allclose(second_ratio(factor * BATCH), second_ratio(BATCH), rtol=tolerances.RANK)
    np.testing.assert_allclose(nonlinearity(factor * Z), nonlinearity(Z), rtol=tolerances.RANK)
    np.testing.assert_array_equal(bulk_count(factor * BATCH, factor * BATCH / 4), bulk_count(BATCH, BATCH / 4))


def test_rank_one_and_zero():
    assert second_ratio(np.array([3.0])) == 0.0
    assert second_ratio(np.array([0.0, 2.0])) == 0.0
    assert second_ratio(np.zeros(3)) == nonlinearity(np.zeros((2, 3))) == 0.0
    assert bulk_count(np.zeros(3), np.zeros(3)) == 0


def test_the_bulk_is_that_of_the_same_matrix():
    initial = np.array([[0.2, 0.1, 0.1], [2.0, 1.0, 1.0]])
    now = np.array([[0.29, 1.0, 0.31], [2.9, 1.0, 3.1]])
    np.testing.assert_array_equal(bulk_count(now, initial), [2, 1])
    np.testing.assert_array_equal(bulk_count(now, initial, margin=1.0), [3, 2])


@pytest.mark.parametrize("of", [jnp.asarray, torch.from_numpy])
def test_results_come_back_in_the_library_of_the_input(of):
    for function, given_ in ((second_ratio, BATCH), (nonlinearity, Z)):
        result = function(of(given_))
        assert type(result) is type(of(given_))
        np.testing.assert_allclose(np.asarray(result), function(given_), rtol=tolerances.RANK)
    assert type(bulk_count(of(BATCH), of(BATCH))) is type(of(BATCH))


@pytest.mark.parametrize(
    ("ranks", "rank"),
    [
        ((3,), 3),
        ((3, 1), 1),
        ((5, 2, 4), 2),
        ((8, 3, 2, 2, 2, 4), 2),
        ((5, 2, 2, 1, 1, 1), 1),  # two runs of two among the middle four: the smaller rank
        ((9, 1, 1, 3, 3, 3, 9), 3),
        ((1, 2, 2, 2, 1), 2),  # the ends do not count
        ((0, 0, 0), 0),
    ],
)
def test_the_bottleneck_is_the_longest_run_of_middle_layers(ranks, rank):
    assert bottleneck_rank(ranks) == rank
    assert bottleneck_rank(ranks[::-1]) == rank
