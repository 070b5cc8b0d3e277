"""The nuclear SVM with fewer columns than their solution's rank: local solutions, honest about what they prove."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.theory.attention.svm import frobenius_svm, nuclear_svm


def test_a_bound_that_the_solution_meets_changes_nothing() -> None:
    data = gaussian_tokens(4, 5, 8, seed=0)
    free = nuclear_svm(data)
    for bound in (free.K.shape[1], 8, 100):
        bounded = nuclear_svm(data, bound)
        assert bounded.local is None
        np.testing.assert_array_equal(bounded.weights, free.weights)


def test_a_tighter_bound_is_stationary_feasible_and_dearer() -> None:
    data = gaussian_tokens(4, 5, 8, seed=0)
    free = nuclear_svm(data)
    last = free.certificate.primal
    for bound in range(free.K.shape[1] - 1, 0, -1):
        found = nuclear_svm(data, bound, num_starts=6)
        local = found.local
        assert local is not None
        assert found.K.shape == found.Q.shape == (8, bound)
        assert np.linalg.matrix_rank(found.weights) == bound
        assert data.margins((found.K, found.Q)).min() == pytest.approx(1, rel=1e-12)
        assert found.certificate.primal == pytest.approx(sum(found.certificate.singular_values), rel=1e-12)
        assert found.certificate.primal > last * (1 + 1e-4)
        assert found.certificate.dual == pytest.approx(free.certificate.dual, rel=1e-12)
        assert not (found.certificate.unique and found.certificate.gap < 1e-6)
        assert local.stationarity < 1e-10
        assert np.all(local.multipliers >= 0)
        np.testing.assert_array_less(found.margins[local.multipliers > 0], 1 + 1e-8)
        assert local.multipliers.sum() == pytest.approx(found.certificate.primal, rel=1e-8)
        assert 1 <= local.num_best <= local.num_feasible <= local.num_starts
        last = found.certificate.primal


def test_the_local_solution_of_rank_one_is_the_best_over_a_fine_grid() -> None:
    data = gaussian_tokens(2, 3, 2, seed=5)
    found = nuclear_svm(data, 1)
    assert found.local is not None
    angles = np.linspace(0, 2 * np.pi, 2881)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    margins = (data.differences @ circle)[..., None] * (data.z @ circle)[:, None, None, :]
    best = 1 / margins.min(axis=(0, 1)).max()
    assert best * (1 - 1e-2) <= found.certificate.primal <= best


def two_fans() -> TokenData:
    """Differences of one sample over the angles 0 to 170 degrees, of the other over 80 to 250; queries e_1 and e_2.

    One query's sign cannot bring both into a half-plane: a rank of one does not separate what a rank of two does.
    """
    angles = np.radians([[0, 60, 120, 170], [80, 140, 200, 250]])
    X = np.zeros((2, 5, 4))
    X[:, 1:, 0], X[:, 1:, 1] = -np.cos(angles), -np.sin(angles)
    X[:, 1:, 2] = -1e-9  # what the head sees; too little to separate by
    return TokenData(X[..., :3], np.eye(3)[:2], np.ones(2), np.array([0.0, 0.0, 1e9]))


def test_a_rank_of_one_that_is_infeasible_is_proven_to_be() -> None:
    data = two_fans()
    assert frobenius_svm(data).K.shape[1] == 2
    with pytest.raises(InputError, match=r"rank_bound.*no W = k q\^T of rank 1"):
        nuclear_svm(data, 1)
