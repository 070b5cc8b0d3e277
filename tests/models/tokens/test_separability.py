"""Separability: every answer is proven from the data alone, independent of the solver."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from saddlescope._shared.errors import InputError
from saddlescope.models import TokenData, gaussian_tokens, require_separable, separability

SIZES = [(4, 5, 8), (4, 5, 2), (6, 4, 3), (20, 5, 8), (3, 8, 2)]


def features(data, diagonal):
    every = data.features if diagonal else np.einsum("imd,ie->imde", data.differences, data.z)
    return every.reshape(data.samples * (data.tokens - 1), -1)


def chosen(data, samples):
    return TokenData(data.X[samples], data.z[samples], data.y[samples], data.v)


def reference(data, diagonal):
    """Feasibility of Assumption 1 as printed, with all d^2 unknowns."""
    F = features(data, diagonal)
    answer = linprog(np.zeros(F.shape[1]), A_ub=-F, b_ub=-np.ones(len(F)), bounds=(None, None), method="highs")
    return answer.status == 0


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_the_answer_is_that_of_the_plain_programme_and_proven(size, diagonal):
    for seed in range(4):
        data = gaussian_tokens(*size, seed=seed)
        answer = separability(data, diagonal=diagonal)
        assert answer.separable == reference(data, diagonal)
        if answer.separable:
            assert answer.weights.shape == ((data.dim,) if diagonal else (data.dim, data.dim))
            assert data.margins(answer.weights).min() == pytest.approx(1, abs=1e-9)
            assert answer.conflict == ()
        else:
            rho = answer.multipliers.ravel() @ features(data, diagonal)
            assert answer.multipliers.min() >= 0
            assert answer.multipliers.sum() == pytest.approx(1)
            assert np.linalg.norm(rho) < 1e-14 * np.abs(features(data, diagonal)).max()
            assert 1e12 < answer.least_norm <= 1 / np.linalg.norm(rho) if np.any(rho) else answer.least_norm > 1e12
            assert tuple(np.flatnonzero(answer.multipliers.any(axis=1))) == answer.conflict


@pytest.mark.parametrize("diagonal", [True, False])
def test_no_sample_of_a_conflict_can_be_left_out(diagonal):
    seen = 0
    for seed in range(6):
        data = gaussian_tokens(7, 4, 2, seed=seed)
        answer = separability(data, diagonal=diagonal)
        if answer.separable:
            continue
        seen += 1
        assert not reference(chosen(data, list(answer.conflict)), diagonal)
        for rest in itertools.combinations(answer.conflict, len(answer.conflict) - 1):
            assert not rest or reference(chosen(data, list(rest)), diagonal)
    assert seen >= 2


def test_a_query_of_zero_conflicts_alone():
    data = gaussian_tokens(3, 3, 4, seed=0)
    z = np.array(data.z)
    z[2] = 0
    for diagonal in (True, False):
        assert separability(TokenData(data.X, z, data.y, data.v), diagonal=diagonal).conflict == (2,)
        assert len(separability(TokenData(data.X, 0 * z, data.y, data.v), diagonal=diagonal).conflict) == 1


def test_diagonal_and_full_weights_are_different_questions():
    X = np.array([[[0.0, 1.0], [0.0, 0.0]]])  # only the second entry separates, and the query has none: W_21 does
    data = TokenData(X, np.array([[1.0, 0.0]]), np.ones(1), np.array([0.0, 1.0]))
    assert not separability(data, diagonal=True).separable
    full = separability(data)
    assert full.separable
    np.testing.assert_allclose(full.weights, [[0, 0], [1, 0]])
    with pytest.raises(InputError, match=r"no diagonal weights prefer the optimal tokens to the others in sample 0\."):
        require_separable(data, diagonal=True)
    assert require_separable(data).separable


def test_opposite_samples_conflict_and_the_message_says_so():
    X = np.array([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    z = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0]])
    data = TokenData(X, z, np.ones(3), np.ones(2))
    for diagonal in (True, False):
        assert separability(data, diagonal=diagonal).conflict == (0, 1)
    with pytest.raises(InputError, match="in samples 0, 1 together, although they do without any one of these"):
        require_separable(data)


def test_scale_does_not_matter():
    for seed, size in ((0, (4, 5, 2)), (2, (4, 5, 2)), (1, (6, 4, 3))):
        data = gaussian_tokens(*size, seed=seed)
        scales = 10.0 ** np.random.default_rng(seed).uniform(-6, 6, (size[0], 1))
        other = TokenData(data.X, data.z * scales, data.y, data.v)
        for diagonal in (True, False):
            assert separability(data, diagonal=diagonal).separable == separability(other, diagonal=diagonal).separable


def test_more_features_than_constraints_that_depend_on_each_other():
    data = gaussian_tokens(2, 4, 30, seed=0)
    X = np.array(data.X)
    best, others = data.optimal[0], data.others[0]
    X[0, others[2]] = (X[0, others[0]] + X[0, others[1]]) / 2  # a difference in the span of two others
    assert separability(TokenData(X, data.z, data.y, data.v)).separable
    assert best == TokenData(X, data.z, data.y, data.v).optimal[0]
