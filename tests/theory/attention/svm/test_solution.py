"""The three attention SVMs: against independent solvers, closed forms and the invariances of the problems."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.theory.attention.svm import DiagonalSvm, MatrixSvm, certify_svm, frobenius_svm, l1_svm, nuclear_svm

MATRIX = [frobenius_svm, nuclear_svm]
Solver = Callable[[TokenData], MatrixSvm]


def rotation(dim: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [(4, 5, 8), (10, 5, 50)])
def test_every_gaussian_draw_is_solved_to_its_certificate(size: tuple[int, int, int], seed: int) -> None:
    data = gaussian_tokens(*size, seed=seed)
    for solver, gap in ((frobenius_svm, 1e-12), (nuclear_svm, 1e-10)):
        found = solver(data)
        assert found.certificate.gap <= gap
        assert found.certificate.unique
        assert found.certificate.rank_certified
        np.testing.assert_allclose(data.margins((found.K, found.Q)), found.margins, rtol=1e-12)
        assert found.margins.min() == pytest.approx(1, rel=1e-14)
    if size == (10, 5, 50):  # at (4, 5, 8) not every draw is separable by diagonal weights
        diagonal = l1_svm(data)
        assert diagonal.certificate.gap <= 1e-12
        assert diagonal.certificate.unique
        assert diagonal.certificate.rank == diagonal.support.sum() == np.sum(diagonal.margins <= 1 + 1e-7)


def test_one_sample_with_two_tokens_in_closed_form() -> None:
    """W = D z^T / (|D|^2 |z|^2) for both matrix norms; beta on the largest entry of z * D."""
    data = gaussian_tokens(1, 2, 5, seed=3)
    D, z = data.differences[0, 0], data.z[0]
    exact = np.outer(D, z) / (D @ D) / (z @ z)
    for solver in MATRIX:
        found = solver(data)
        np.testing.assert_allclose(found.weights, exact, rtol=1e-13)
        assert found.K.shape == (5, 1)
        np.testing.assert_allclose(found.multipliers, [[np.linalg.norm(exact)]], rtol=1e-13)
    B = z * D
    largest = np.argmax(np.abs(B))
    np.testing.assert_allclose(l1_svm(data).beta, np.where(np.arange(5) == largest, 1 / B[largest], 0.0), rtol=1e-13)


def test_orthogonal_samples_add_up() -> None:
    """Samples with orthogonal differences and queries: nuclear norms add, squares of Frobenius norms add."""
    X = np.zeros((2, 2, 4))
    X[0, 0, 0], X[1, 0, 1] = 2.0, 3.0
    z = np.zeros((2, 4))
    z[0, 2], z[1, 3] = 1.0, 0.5
    data = TokenData(X, z, np.ones(2), np.array([1.0, 1.0, 0.0, 0.0]))
    sizes = np.array([1 / 2, 1 / 1.5])
    assert nuclear_svm(data).certificate.primal == pytest.approx(sizes.sum(), rel=1e-12)
    assert frobenius_svm(data).certificate.primal == pytest.approx(np.linalg.norm(sizes), rel=1e-13)
    W = np.zeros((4, 4))
    W[0, 2], W[1, 3] = sizes
    np.testing.assert_allclose(frobenius_svm(data).weights, W, atol=1e-13)


def test_a_known_tie_is_not_called_unique() -> None:
    """Two samples with one query and orthogonal D: |(a, b)| is least at a = b = 1 alone; with l1 features that tie,
    beta may be split at will.
    """
    X = np.array([[[1.0, 1.0], [0.0, 0.0]]])
    data = TokenData(X, np.ones((1, 2)), np.ones(1), np.ones(2))
    found = l1_svm(data)
    assert found.certificate.primal == pytest.approx(1.0, rel=1e-14)
    assert not found.certificate.unique
    assert found.certificate.largest_rank == 2
    X = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    data = TokenData(X, np.eye(2), np.ones(2), np.ones(2))  # W_11, W_22 >= 1: W_12 = W_21 in [-1, 1] is free
    found = nuclear_svm(data)
    assert found.certificate.primal == pytest.approx(2.0, rel=1e-12)
    assert not found.certificate.unique
    assert found.certificate.largest_rank == 2


@pytest.mark.parametrize("solver", MATRIX)
def test_rotations_of_tokens_and_of_queries_turn_the_solution(solver: Solver) -> None:
    data = gaussian_tokens(5, 4, 7, seed=2)
    R, S = rotation(7, 0), rotation(7, 1)
    turned = solver(TokenData(data.X @ R.T, data.z @ S.T, data.y, R @ data.v))
    np.testing.assert_allclose(turned.weights, R @ solver(data).weights @ S.T, atol=1e-9)


def test_the_order_of_samples_and_tokens_does_not_matter_nor_a_sample_given_twice() -> None:
    data = gaussian_tokens(5, 4, 9, seed=4)
    order, tokens = np.array([3, 1, 4, 0, 2, 1]), np.array([2, 0, 3, 1])
    other = TokenData(data.X[order][:, tokens], data.z[order], data.y[order], data.v)
    for solver in MATRIX:
        np.testing.assert_allclose(solver(other).weights, solver(data).weights, atol=1e-9)
        assert solver(other).multipliers.sum() == pytest.approx(solver(data).multipliers.sum(), rel=1e-10)
    np.testing.assert_allclose(l1_svm(other).beta, l1_svm(data).beta, atol=1e-12)


def test_the_nuclear_solution_has_the_lesser_nuclear_norm_and_the_larger_frobenius_norm() -> None:
    data = gaussian_tokens(6, 4, 20, seed=0)
    nuclear, frobenius = nuclear_svm(data), frobenius_svm(data)
    s, t = (np.array(found.certificate.singular_values) for found in (nuclear, frobenius))
    assert s.sum() < t.sum() - 1e-3
    assert np.linalg.norm(t) < np.linalg.norm(s) - 1e-3
    assert nuclear.certificate.rank < frobenius.certificate.rank


def test_large_dimensions_cost_no_product_of_them() -> None:
    data = gaussian_tokens(3, 3, 20_000, seed=0)  # W would take 3 GB
    for solver in MATRIX:
        assert solver(data).certificate.gap < 1e-10


def test_a_frobenius_certificate_takes_no_memory_of_cubes() -> None:
    n = 150
    E = np.eye(2 * n)
    data = TokenData(np.stack([E[:n], 0 * E[:n]], axis=1), E[n:], np.ones(n), E.sum(axis=0))
    tracemalloc.start()
    certificate = certify_svm(data, (E[:, :n], E[:, n:]), np.ones((n, 1)), norm="frobenius")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert certificate.gap < 1e-12
    assert peak < 8 * n**3 / 2


@pytest.mark.parametrize("solver", [frobenius_svm, nuclear_svm, l1_svm])
def test_data_that_nothing_separates_are_refused_by_their_samples(
    solver: Callable[[TokenData], MatrixSvm | DiagonalSvm],
) -> None:
    data = gaussian_tokens(6, 4, 20, seed=0)
    opposite = TokenData(
        np.concatenate([data.X, data.X[2:3]]),
        np.concatenate([data.z, -data.z[2:3]]),
        np.concatenate([data.y, data.y[2:3]]),
        data.v,
    )
    with pytest.raises(InputError, match=r"separable.*in samples 2, 6"):
        solver(opposite)
    without = data.z.copy()
    without[4] = 0
    with pytest.raises(InputError, match="sample 4"):
        solver(TokenData(data.X, without, data.y, data.v))


def test_scales_of_weights_and_multipliers_are_taken_out() -> None:
    data = gaussian_tokens(5, 4, 12, seed=1)
    found = nuclear_svm(data)
    scaled = certify_svm(data, (5 * found.K, 2 * found.Q), 3 * found.multipliers, norm="nuclear")
    assert scaled.gap == pytest.approx(found.certificate.gap, abs=1e-14)


def test_weights_that_separate_nothing_prove_nothing() -> None:
    data = gaussian_tokens(5, 4, 12, seed=1)
    found = nuclear_svm(data)
    reversed_ = certify_svm(data, (-found.K, found.Q), found.multipliers, norm="nuclear")
    assert reversed_.primal == np.inf
    assert reversed_.gap == 1
    assert reversed_.dual == pytest.approx(found.certificate.dual)


def test_the_certificate_reads_as_a_sentence() -> None:
    data = gaussian_tokens(4, 5, 8, seed=0)
    reported = str(nuclear_svm(data).certificate)
    assert reported.startswith("The least nuclear norm is between 0.55182856101")
    assert reported.endswith("(no optimum has a larger one); the only optimum.")
    assert "rank 2" in str(nuclear_svm(data, rank_bound=2).certificate)
    assert "an optimum has up to 3" in str(nuclear_svm(data, rank_bound=2).certificate)
