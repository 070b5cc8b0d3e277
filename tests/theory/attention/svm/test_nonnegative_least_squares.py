"""Quadratic programs of the SVMs, and the hard cases: many constraints, ties, near conflicts."""

import itertools

import numpy as np
import pytest

from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import aligned_tokens, conditioned_tokens, gaussian_tokens
from saddlescope.theory.attention.svm import frobenius_svm, l1_svm, nuclear_svm
from saddlescope.theory.attention.svm.nonnegative_least_squares import nonnegative_minimum, proximal_minima


def test_exchanges_in_blocks_that_cycle_are_left_for_an_active_set() -> None:
    """Murty's family, on which single exchanges take 2^n steps, with blocks that do not help."""
    n = 18
    L = np.tril(np.full((n, n), 2.0), -1) + np.eye(n)
    H, h = L @ L.T, np.ones(n)
    for free in (np.zeros(n, bool), np.ones(n, bool), np.arange(n) % 2 == 0):
        multipliers, _ = nonnegative_minimum(H, h, free)
        slack = H @ multipliers - h
        assert multipliers.min() >= 0
        assert slack.min() > -1e-9
        assert abs(multipliers @ slack) < 1e-9


@pytest.mark.parametrize("seed", [4, 20])
def test_an_active_set_of_a_nearly_singular_matrix_is_solved_exactly(seed: int) -> None:
    """Blocks cycle from every second index; from the set that was found, nothing is left to exchange."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(20, 60)) * np.exp(2 * rng.normal(size=60))
    ridge = 1e-13 * np.sum(A**2) / 60
    H, h = A.T @ A + ridge * np.eye(60), A.T @ rng.normal(size=20) + ridge * rng.uniform(size=60)
    multipliers, passive = nonnegative_minimum(H, h, np.arange(60) % 2 == 0)
    np.testing.assert_array_equal(multipliers, nonnegative_minimum(H, h, passive)[0])


def test_proximal_minima_solve_singular_programmes_and_grow_without_a_solution() -> None:
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 2.0]])
    H = rows @ rows.T
    *_, multipliers = itertools.islice(proximal_minima(H, np.ones(4)), 5)
    np.testing.assert_allclose(rows.T @ multipliers, [1.0, 0.5], rtol=1e-12)  # the shortest w with rows w >= 1
    opposite = np.array([[1.0, 0.0], [-1.0, 0.0]])
    sizes = [lam.sum() for lam in itertools.islice(proximal_minima(opposite @ opposite.T, np.ones(2)), 3)]
    assert sizes[0] > 1e9
    assert sizes[2] > 2 * sizes[0]


def test_an_indefinite_matrix_is_refused() -> None:
    with pytest.raises(ArithmeticError, match="positive definite"):
        nonnegative_minimum(-np.eye(3), np.ones(3), np.ones(3, bool))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [(20, 5, 8), (28, 5, 8), (60, 2, 8), (2, 3, 2)])
def test_more_constraints_than_dimensions(size: tuple[int, int, int], seed: int) -> None:
    data = gaussian_tokens(*size, seed=seed)
    assert frobenius_svm(data).certificate.gap < 1e-12
    nuclear = nuclear_svm(data).certificate
    assert nuclear.gap < 1e-9
    assert nuclear.unique


@pytest.mark.parametrize("seed", range(4))
def test_conditioned_and_aligned_data(seed: int) -> None:
    conditioned = conditioned_tokens(4, 5, 8, seed=seed)
    assert l1_svm(conditioned).certificate.unique
    aligned = aligned_tokens(4, 5, 8, seed=seed)
    nuclear, frobenius = nuclear_svm(aligned), frobenius_svm(aligned)
    for data, solver in itertools.product((conditioned, aligned), (l1_svm, frobenius_svm, nuclear_svm)):
        assert solver(data).certificate.gap < 1e-11
    assert not nuclear.certificate.unique  # Assumptions 2 and 4 leave the nuclear problem many solutions,
    W = frobenius.weights  # W_F among them
    assert np.linalg.norm(W, "nuc") == pytest.approx(nuclear.certificate.primal, rel=1e-10)


def test_samples_that_differ_by_little_and_queries_nearly_opposite() -> None:
    data = gaussian_tokens(5, 4, 12, seed=3)
    rng = np.random.default_rng(0)

    def with_sample(X: np.ndarray, z: np.ndarray) -> TokenData:
        return TokenData(np.concatenate([data.X, X]), np.concatenate([data.z, z]), np.append(data.y, data.y[0]), data.v)

    near = with_sample(data.X[:1] + 1e-8 * rng.normal(size=(1, 4, 12)), data.z[:1])
    for solver in (frobenius_svm, nuclear_svm):
        assert solver(near).certificate.gap < 1e-11
        assert solver(near).certificate.primal == pytest.approx(solver(data).certificate.primal, rel=1e-6)
    conflict = with_sample(data.X[:1], -data.z[:1] + 1e-3 * rng.normal(size=(1, 12)))
    for solver in (frobenius_svm, nuclear_svm):
        assert solver(conflict).certificate.gap < 1e-6
        assert solver(conflict).certificate.primal > 100 * solver(data).certificate.primal
    worse = with_sample(data.X[:1], -data.z[:1] + 1e-6 * rng.normal(size=(1, 12)))
    for solver in (frobenius_svm, nuclear_svm):
        with pytest.raises(ArithmeticError, match=r"its optimum is between|rounding"):
            solver(worse)
