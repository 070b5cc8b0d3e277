"""The degenerate data of the entry on the initial scale."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from saddlescope.papers.softmax_attention.extensions.initial_scale import degenerate_tokens, least_entropy
from saddlescope.theory.attention.svm import l1_svm


def test_the_added_coordinate_makes_a_segment_of_solutions():
    of = degenerate_tokens(4, 5, 8, seed=7)
    u = of.data.margins(of.beta)
    assert l1_svm(of.data).certificate.dual == pytest.approx(np.abs(of.beta).sum(), rel=1e-9)
    picked = least_entropy(of, np.linspace(0.1, 0.5, 9))
    assert picked[-1] > 0
    np.testing.assert_allclose(of.data.margins(picked), u, atol=1e-12)
    assert np.abs(picked).sum() == pytest.approx(np.abs(of.beta).sum(), rel=1e-12)


def test_the_least_entropy_is_the_least():
    of, scale = degenerate_tokens(4, 5, 8, seed=7), np.linspace(0.1, 0.5, 9)
    signs = np.sign(of.beta)
    most = 2 * min(abs(of.beta[j]) for j in of.pair)

    def entropy(taken):
        beta = np.append(of.beta[:-1], taken)
        for j in of.pair:
            beta[j] -= signs[j] * taken / 2
        size = np.abs(beta[beta != 0])
        return np.sum(size * (np.log(size / scale[beta != 0] ** 2) - 1))

    best = minimize_scalar(entropy, bounds=(1e-9, most - 1e-9), method="bounded", options={"xatol": 1e-10}).x
    assert least_entropy(of, scale)[-1] == pytest.approx(best, abs=1e-6)
    assert least_entropy(of, 5 * scale)[-1] == pytest.approx(least_entropy(of, scale)[-1], rel=1e-12)
