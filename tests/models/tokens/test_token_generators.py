"""Random token data: the stated properties of each generator, checked from the data."""

import numpy as np
import pytest
from scipy.optimize import linprog

from saddlescope.models import aligned_tokens, check_token_assumptions, conditioned_tokens, gaussian_tokens, with_gaps


def test_gaussian_tokens_have_the_requested_scores():
    data = gaussian_tokens(6, 5, 8, seed=3, gap=2.5)
    np.testing.assert_allclose(data.optimal_scores, 0, atol=1e-13)
    np.testing.assert_allclose(data.gaps, 2.5, rtol=1e-13)
    assert np.linalg.norm(data.v) == pytest.approx(10)
    assert check_token_assumptions(data).equal_scores.number == 0
    assert len(set(data.optimal)) > 1
    assert set(data.y) == {-1, 1}


def test_a_spread_makes_other_scores_unequal_within_its_bounds():
    gaps = gaussian_tokens(20, 6, 8, seed=3, gap=2.0, spread=0.3).gaps
    assert 1.4 <= gaps.min() < 1.45
    assert 2.55 < gaps.max() <= 2.6
    np.testing.assert_allclose(gaussian_tokens(20, 6, 8, seed=3, gap=2.0).optimal_scores, 0, atol=1e-13)


@pytest.mark.parametrize("size", [(1, 3, 4), (4, 5, 8), (10, 5, 50)])
def test_the_default_gap_meets_assumption_3_and_hardly_more(size):
    small = check_token_assumptions(gaussian_tokens(*size, seed=0)).small_initial_loss
    assert small.holds
    if size[0] > 1:
        smaller = gaussian_tokens(*size, seed=0, gap=0.95 * size[1] * np.log(size[0]))
        assert not check_token_assumptions(smaller).small_initial_loss.holds


def test_the_same_seed_gives_the_same_data():
    for make in (gaussian_tokens, conditioned_tokens):
        one, two, other = (make(4, 5, 8, seed=seed) for seed in (7, 7, 8))
        np.testing.assert_array_equal(one.X, two.X)
        assert not np.array_equal(one.X, other.X)


@pytest.mark.parametrize(("size", "seed"), [((4, 5, 8), 0), ((4, 5, 8), 1), ((10, 5, 50), 2)])
def test_conditioned_tokens_have_a_sparse_and_well_conditioned_solution(size, seed):
    data = conditioned_tokens(*size, seed=seed)
    np.testing.assert_allclose(data.gaps, size[1] * np.log(size[0]), rtol=1e-12)
    assert check_token_assumptions(data).small_initial_loss.holds
    B = data.features.reshape(-1, data.dim)
    # The dual alone, max sum lambda with |B^T lambda| <= 1: another program than the generator's.
    dual = linprog(-np.ones(len(B)), A_ub=np.vstack([B.T, -B.T]), b_ub=np.ones(2 * data.dim), method="highs")
    correlation = np.abs(B.T @ dual.x)
    on = correlation > 1 - 1e-9
    active = dual.x > 1e-9
    assert on.sum() == active.sum() == 3
    assert correlation[~on].max() <= 0.2
    beta = np.zeros(data.dim)
    beta[on] = np.linalg.solve(B[np.ix_(active, on)], np.ones(3))
    assert np.abs(beta).sum() == pytest.approx(-dual.fun, rel=1e-9)
    assert (B @ beta)[~active].min() >= 1.05 - 1e-9


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("size", [(1, 3, 2), (2, 3, 3), (5, 7, 9)])
def test_aligned_tokens_meet_assumptions_2_and_4(size, signed):
    ratio = np.linspace(-1.0, 0.5, size[0])
    data = aligned_tokens(*size, seed=4, gap=2.0, ratio=ratio, signed=signed)
    answers = check_token_assumptions(data)
    assert answers.fourth
    assert answers.equal_scores.holds
    assert answers.separable.holds
    np.testing.assert_allclose(data.gaps, 2.0, rtol=1e-12)
    np.testing.assert_allclose(data.optimal_scores, 2.0 / (1 - ratio), rtol=1e-12)
    np.testing.assert_allclose(data.scores.min(axis=1), ratio * data.optimal_scores, atol=1e-12)
    best = data.X[np.arange(size[0]), data.optimal]
    if not signed:
        assert np.all(np.sum(best * data.z, axis=1) > 0)
    assert len(np.unique(np.linalg.norm(data.z, axis=1))) == size[0]


def test_signed_aligned_tokens_have_both_signs():
    data = aligned_tokens(8, 3, 8, seed=0, signed=True)
    signs = np.sign(np.sum(data.X[np.arange(8), data.optimal] * data.z, axis=1))
    assert set(signs) == {-1, 1}


def test_one_ratio_meets_assumption_3():
    assert check_token_assumptions(aligned_tokens(4, 5, 6, seed=0, ratio=-0.5)).small_initial_loss.holds


def test_other_gaps_leave_all_but_the_wrong_tokens():
    data = gaussian_tokens(3, 4, 5, seed=1)
    gaps = np.random.default_rng(0).uniform(0.5, 3, (3, 3))
    other = with_gaps(data, gaps)
    np.testing.assert_allclose(other.gaps, gaps, rtol=1e-12)
    every = np.arange(3)
    np.testing.assert_array_equal(other.X[every, other.optimal], data.X[every, data.optimal])
    moved = (other.X - data.X).reshape(-1, 5)
    np.testing.assert_allclose(moved - np.outer(moved @ data.v, data.v) / (data.v @ data.v), 0, atol=1e-13)
