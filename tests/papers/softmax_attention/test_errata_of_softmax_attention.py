"""The errata of Sheen et al., each checked in exact or high-precision arithmetic where it can be."""

from fractions import Fraction

import jax
import numpy as np
from mpmath import asinh, diff, exp, log, mp, mpf, sqrt

from saddlescope.models import TokenData, attention_loss, separability
from saddlescope.papers.softmax_attention.shared.aligned import KINDS, draw_aligned_start, draw_instance


def test_lemma_4_2_needs_diagonal_separability():
    """B = 0 though W = e_2 e_1^T has margin 1; and B = (1, 0), (-1, 0), at which beta = 0 is stationary."""
    one, nil = Fraction(1), Fraction(0)
    difference, query, W = [nil, one], [one, nil], [[nil, nil], [one, nil]]
    assert sum(difference[a] * W[a][b] * query[b] for a in range(2) for b in range(2)) == 1
    assert [z * x for z, x in zip(query, difference, strict=True)] == [0, 0]
    X = np.array([[[1.0, 1.0], [0.0, 0.0]], [[-1.0, 1.0], [0.0, 0.0]]])
    data = TokenData(X, np.array([[1.0, 0.0]] * 2), np.ones(2), np.array([0.0, 1.0]))
    np.testing.assert_array_equal(data.features[:, 0], [[1, 0], [-1, 0]])
    np.testing.assert_array_equal(jax.grad(attention_loss(data))(np.zeros(2)), 0)
    assert separability(data).separable
    assert not separability(data, diagonal=True).separable


def test_equation_27_counts_one_over_n_twice():
    """Two samples with one feature each: dL/dt from dbeta/dt of Lemma A.1 is n times the printed one."""
    with mp.workdps(40):
        features, gaps, omega, beta, n = (mpf(1), mpf("0.7")), (mpf(2), mpf(3)), mpf("0.3"), mpf("0.4"), 2

        def loss(at):
            return sum(exp(g / (1 + exp(b * at))) for b, g in zip(features, gaps, strict=True)) / n

        slope = diff(loss, beta)
        plus = sqrt(beta + sqrt(beta**2 + omega**4))  # of w+ w- = omega^2 and beta = (w+^2 - w-^2) / 2
        minus = omega**2 / plus
        moved = -(slope**2) * (plus**2 + minus**2)  # dw+/dt = -w+ slope and dw-/dt = w- slope
        printed = -mpf(2) / n * slope**2 * sqrt(beta**2 + omega**4)
        assert abs(moved / printed - n) < mpf(10) ** -30
        assert moved <= -mpf(2) / n * omega**2 * slope**2  # the inequality


def test_inequality_35_needs_scores_of_at_least_zero():
    """phi' over the printed bound's is exp(-gamma^T sigma) sigma_opt: even attention, scores 0 and four of -5."""
    attention, scores = Fraction(1, 5), [0, -5, -5, -5, -5]
    exponent = -sum(attention * score for score in scores)
    assert exponent == 4
    assert exp(4) / 5 > 10


def test_singular_values_beyond_the_nth_do_not_move_whatever_their_columns():
    data = draw_instance(KINDS[0], 3, 5, 6, seed=4)
    start = draw_aligned_start(data, 7, (0.1, 0.2), seed=4)
    loss = attention_loss(data)
    of_keys, of_queries = jax.grad(lambda weights: loss(weights[0] @ weights[1].T))(start.weights)
    for moved in start.coordinates(np.asarray(of_keys), np.asarray(of_queries)):
        assert np.abs(moved[:3]).max() > 1e-6
        assert np.abs(moved[3:]).max() < 1e-15 < 1e-6


def test_the_multiplier_of_a_7_is_phi_over_ln_mu():
    """min |beta| over beta >= 1 has the multiplier 1; phi = arcsinh(mu / omega^2)."""
    with mp.workdps(30):
        mu = mpf(10) ** (10**9)
        assert abs(asinh(mu / mpf("0.09")) / log(mu) - 1) < 1e-8


def test_the_subdifferential_has_e_p_v():
    """W = e_1 e_2^T: G = e_1 e_2^T + E is a subgradient for |G| <= 1, <G, W> = 1; P_U = e_1 e_1^T, P_V = e_2 e_2^T."""
    unit = np.eye(3, dtype=int)
    W, P_V = np.outer(unit[0], unit[1]), np.outer(unit[1], unit[1])
    admitted, excluded = np.outer(unit[2], unit[1]), np.outer(unit[1], unit[0])
    assert not (P_V @ admitted).any()
    assert (admitted @ P_V).any()
    assert np.linalg.eigvalsh((W + admitted).T @ (W + admitted))[-1] == 2
    assert (P_V @ excluded).any()
    assert not (excluded @ P_V).any()
    assert np.linalg.eigvalsh((W + excluded).T @ (W + excluded))[-1] == 1
    for E in (admitted, excluded):
        assert not (np.outer(unit[0], unit[0]) @ E).any()
