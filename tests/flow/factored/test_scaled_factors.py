"""Scaled factors: the group's action against exact exponentials in hundreds of digits, and its invariants."""

import mpmath
import numpy as np
import pytest
from scipy.linalg import expm

from saddlescope.flow.factored.scaled_factors import ScaledFactors, moved_factors


def generator(W):
    m, n = W.shape
    return np.block([[np.zeros((m, m)), W], [W.T, np.zeros((n, n))]])


def stacked(pair):
    return np.concatenate(pair.factors())


@pytest.mark.parametrize(("m", "n", "h"), [(4, 4, 4), (3, 5, 2), (4, 3, 8), (5, 5, 1)])
def test_moves_are_matrix_exponentials(m, n, h):
    rng = np.random.default_rng(m + n + h)
    left, right = rng.standard_normal((m, h)), rng.standard_normal((n, h))
    pair, M = ScaledFactors.of(left, right, -0.5), np.exp(-0.5) * np.concatenate([left, right])
    np.testing.assert_allclose(stacked(pair), M, atol=1e-15)
    for _ in range(4):
        W = 0.7 * rng.standard_normal((m, n))
        plain = moved_factors(*pair.factors(), W)
        pair, M = pair.moved(W), expm(generator(W)) @ M
        scale = np.abs(M).max()
        np.testing.assert_allclose(stacked(pair), M, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(np.concatenate(plain), M, rtol=0, atol=1e-12 * scale)
    values = np.linalg.svd(M[:m] @ M[m:].T, compute_uv=False)[: min(m, n, h)]
    seen = values > 1e-7 * values[0]
    logs = pair.log_singular_values()
    np.testing.assert_allclose(logs[: len(values)][seen], np.log(values)[seen], atol=1e-5)
    assert np.all(np.isneginf(logs[len(values) :]))


def exact_exponential(W):
    S = mpmath.matrix(generator(W).tolist())
    values, vectors = mpmath.eigsy(S)
    return vectors * mpmath.diag([mpmath.exp(value) for value in values]) * vectors.T


def test_directions_of_any_size_are_kept_while_others_grow_shrink_and_turn():
    """A direction that reaches e^260, decays and passes through 1, beside others of size e^-737."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 2, 2))
    turn, back = np.linalg.qr(rng.standard_normal((2, 2, 2)))[0]
    pair = ScaledFactors.of(left, right, -737.0)
    with mpmath.workdps(1500):
        M = mpmath.exp(-737) * mpmath.matrix(np.concatenate([left, right]).tolist())
        for W in (
            turn @ np.diag([700.0, 3.0]) @ back.T,
            0.3 * rng.standard_normal((2, 2)),
            turn @ np.diag([-300.0, 200.0]) @ back.T,
            rng.standard_normal((2, 2)),
            turn @ np.diag([-500.0, 1.0]) @ back.T,
        ):
            M, pair = exact_exponential(W) * M, pair.moved(W)
            values = mpmath.svd_r(M[:2, :] * M[2:, :].T, compute_uv=False)
            np.testing.assert_allclose(pair.log_singular_values(), [float(mpmath.log(s)) for s in values], atol=1e-6)
    assert pair.drift(ScaledFactors.of(left, right, -737.0), -737.0) < 1e-11


def test_diagonal_factors_stay_diagonal_to_the_last_bit():
    u, v = np.random.default_rng(3).standard_normal((2, 4))
    pair = ScaledFactors.of(np.diag(u), np.diag(v), -20.0)
    for efolds in ([30.0, -5.0, 0.1, 2.0], [-60.0, 8.0, 40.0, 0.3], [1.0, 25.0, -70.0, 0.2]):
        pair = pair.moved(np.diag(efolds))
    left, right = pair.factors()
    total = np.array([-29.0, 28.0, -29.9, 2.5])
    plus, minus = (np.exp(-20.0) * (u + s * v) / 2 * np.exp(s * total) for s in (1, -1))
    np.testing.assert_allclose(np.diag(left), plus + minus, rtol=1e-12)
    np.testing.assert_allclose(np.diag(right), plus - minus, rtol=1e-12)
    assert np.count_nonzero(left - np.diag(np.diag(left))) == 0


def test_taking_tilt_away_keeps_what_is_conserved_and_what_is_new():
    rng = np.random.default_rng(7)
    start = ScaledFactors.of(*rng.standard_normal((2, 3, 3)), -30.0)
    pair = start.moved(np.linalg.qr(rng.standard_normal((3, 3)))[0] @ np.diag([30.0, 9.0, 1.0]))
    plain = pair.untilted(1)
    assert plain.drift(start, -30.0) < 1e-12
    np.testing.assert_allclose(plain.a.part[1:] @ plain.a.part[0], 0, atol=1e-14)
    np.testing.assert_allclose(plain.log_singular_values(), pair.log_singular_values(), atol=1e-6)
