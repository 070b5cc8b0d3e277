"""Theorem 5.1: the common solution of both norms, equations 40 to 44, and the data of each kind."""

import numpy as np
import pytest

from saddlescope.models.tokens.assumptions import alignment_residual, check_token_assumptions
from saddlescope.papers.softmax_attention.shared.aligned import KINDS, draw_aligned_start, draw_instance
from saddlescope.papers.softmax_attention.theorem_5_1 import identity_error
from saddlescope.theory import frobenius_svm, nuclear_svm
from saddlescope.theory.attention.aligned_flow import aligned_product_flow


def test_the_norms_have_a_common_solution_and_the_nuclear_norm_others():
    data = draw_instance(KINDS[0], 3, 5, 6, seed=4)
    flow = aligned_product_flow(data, np.ones(3), np.zeros(3))
    h, (p, q) = 1 / flow.limit, flow.directions
    common = frobenius_svm(data).weights
    np.testing.assert_allclose(common, (p.T / h) @ q, atol=1e-9)
    least = nuclear_svm(data).certificate.primal
    assert np.linalg.norm(common, "nuc") == pytest.approx(least, rel=1e-9) == np.sum(1 / h)
    across = np.outer(p @ data.v, p @ data.v)
    np.fill_diagonal(across, 0.0)
    step = 0.5 / np.linalg.norm(across * np.sqrt(np.outer(h, h)), 2)
    other = p.T @ (np.diag(1 / h) + step * across) @ q
    assert np.linalg.norm(other - common) > 0.01
    assert np.linalg.norm(other, "nuc") == pytest.approx(least, rel=1e-9)
    assert data.margins(other).min() > 1 - 1e-9


def test_the_identities_need_aligned_weights_and_pairs():
    rng = np.random.default_rng(0)
    for kind, holds in ((KINDS[0], True), (KINDS[2], False)):
        data = draw_instance(kind, 3, 5, 6, seed=4)
        start = draw_aligned_start(data, 7, (0.1, 0.2), seed=4)
        W = (start.left * rng.standard_normal(6)) @ start.right.T
        assert (identity_error(data, W, (start.left, start.right)) < 1e-12) == holds
        assert identity_error(data, W + rng.standard_normal(W.shape), (start.left, start.right)) > 1e-3


@pytest.mark.parametrize(("kind", "broken"), list(zip(KINDS, (None, "parallel", "paired"), strict=True)))
def test_each_kind_breaks_what_it_says_and_no_more(kind, broken):
    data = draw_instance(kind, 3, 5, 6, seed=4)
    start = draw_aligned_start(data, 7, (0.1, 0.2), seed=4)
    found = check_token_assumptions(data, start.weights)
    for name in ("equal_scores", "small_initial_loss", "orthogonal", "parallel", "paired", "aligned"):
        assert getattr(found, name).holds == (name != broken), name
    K, Q = start.weights
    assert np.abs(K @ Q.T).max() < 1e-15
    sizes = np.linalg.svd(K, compute_uv=False)[:6] ** 2 + np.linalg.svd(Q, compute_uv=False)[:6][::-1] ** 2
    assert np.all(sizes > 2 * 0.1**2 * (1 - 1e-9))
    assert np.all(sizes < 2 * 0.2**2 * (1 + 1e-9))
    keys, queries = start.coordinates(K, Q)
    assert keys == pytest.approx(np.eye(6, 7) * np.append(start.keys, 0), abs=1e-14)
    assert queries == pytest.approx(np.eye(6, 7) * np.append(start.queries, 0), abs=1e-14)
    assert alignment_residual(data, K + 1e-3, Q) > 1e-4
