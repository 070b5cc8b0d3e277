"""Assumptions of the paper, each met and each violated on purpose."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from saddlescope.models import (
    TokenData,
    aligned_tokens,
    alignment_residual,
    attention_loss,
    check_token_assumptions,
    gaussian_tokens,
)


def moved(data, **changes):
    return TokenData(**{name: getattr(data, name) for name in "Xzyv"} | changes)


def aligned_weights(data, columns, rng):
    """Return K and Q with the alignment property by definition, with the columns of U_K, U_Q in a random order."""

    def basis(rows):
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rest = np.linalg.svd(units)[2][len(units) :]
        return np.concatenate([units, ortho_group.rvs(len(rest), random_state=rng) @ rest]).T

    d, order = data.dim, rng.permutation(data.dim)
    UK, UQ = basis(data.X[np.arange(data.samples), data.optimal])[:, order], basis(data.z)[:, order]
    V = ortho_group.rvs(columns, random_state=rng)
    LK, LQ = (np.zeros((d, columns)) for _ in range(2))
    least = min(d, columns)
    LK[range(least), range(least)], LQ[range(least), range(least)] = rng.normal(size=(2, least))
    return UK, UQ, V, LK, LQ


@pytest.mark.parametrize("columns", [4, 8, 11])
def test_alignment_by_its_definition_and_without_each_of_its_conditions(columns):
    data, rng = aligned_tokens(4, 5, 8, seed=1, signed=True), np.random.default_rng(0)
    UK, UQ, V, LK, LQ = aligned_weights(data, columns, rng)
    K, Q = UK @ LK @ V.T, UQ @ LQ @ V.T
    assert alignment_residual(data, K, Q) < 1e-14
    assert alignment_residual(data, 7 * K, 0 * Q) < 1e-14
    assert alignment_residual(data, 0 * K, Q / 9) < 1e-14
    assert alignment_residual(data, K, UQ @ np.roll(LQ, 1, axis=0) @ V.T) > 0.01  # another order of the queries
    assert alignment_residual(data, ortho_group.rvs(8, random_state=rng) @ K, Q) > 0.01
    assert alignment_residual(data, K, UQ @ LQ @ ortho_group.rvs(columns, random_state=rng)) > 0.01  # another V
    off = alignment_residual(data, K + 1e-6 * rng.normal(size=K.shape), Q)
    assert 1e-8 < off < 1e-4


def test_alignment_asks_for_one_v_where_the_data_do_not_look():
    data, rng = aligned_tokens(2, 3, 6, seed=1), np.random.default_rng(0)
    UK, UQ, V, LK, LQ = aligned_weights(data, 6, rng)
    best = data.X[np.arange(2), data.optimal]
    seen = np.array([np.argmax(np.abs(UK.T @ row)) for row in best])
    unseen = [k for k in range(6) if k not in seen]
    other = np.array(V)
    other[:, unseen] = V[:, unseen] @ ortho_group.rvs(4, random_state=rng)
    assert alignment_residual(data, UK @ LK @ V.T, UQ @ LQ @ V.T) < 1e-14
    assert alignment_residual(data, UK @ LK @ V.T, UQ @ LQ @ other.T) > 0.01


def test_alignment_distinguishes_parallel_from_orthogonal_vectors():
    data = aligned_tokens(1, 3, 2, seed=0)
    a = data.X[0, data.optimal[0]] / np.linalg.norm(data.X[0, data.optimal[0]])
    b = data.z[0] / np.linalg.norm(data.z[0])
    e1, e2 = np.eye(2)
    assert alignment_residual(data, np.outer(a, e1), np.outer(b, e1)) < 1e-15
    assert (
        alignment_residual(data, np.outer(a, e1), np.outer(b, e2)) > 0.9
    )  # both have the singular vectors, but not in one V


def test_assumption_3_is_the_papers_inequality():
    rng = np.random.default_rng(0)
    seen = set()
    for seed, gap in enumerate((1.0, 3.0, 5.0, 6.0, 6.9, 7.5)):
        data = gaussian_tokens(4, 5, 6, seed=seed, gap=gap)
        for beta in (np.zeros(6), 0.3 * rng.normal(size=6)):
            scores = np.sort(data.scores, axis=1)
            missed = [
                np.exp(-scores[j, -2]) + sum(np.exp(-scores[i, -1]) for i in range(4) if i != j) for j in range(4)
            ]
            holds = float(attention_loss(data)(beta)) <= min(missed) / 4
            assert check_token_assumptions(data, beta).small_initial_loss.holds == holds
            seen.add(holds)
    assert seen == {True, False}
    assert not check_token_assumptions(gaussian_tokens(4, 5, 6, seed=0), loss="logistic").small_initial_loss.holds


def test_each_part_of_assumption_4_violated_alone():
    data = aligned_tokens(3, 5, 7, seed=2)
    best, z, X = data.X[np.arange(3), data.optimal], np.array(data.z), np.array(data.X)
    assert check_token_assumptions(data).fourth

    z[0] += 1e-3 * np.linalg.norm(z[0]) / np.linalg.norm(best[1]) * best[1]
    answers = check_token_assumptions(moved(data, z=z))
    assert not answers.orthogonal.holds
    assert answers.orthogonal.number == pytest.approx(1e-3, rel=1e-3)
    assert not answers.parallel.holds
    assert answers.parallel.number == pytest.approx(5e-7, rel=1e-3)
    assert answers.paired.holds

    k = data.others[1, 2]
    X[1, k] += 1e-3 * np.linalg.norm(best[1]) * np.linalg.svd(np.array([data.v, best[1]]))[2][-1]
    answers = check_token_assumptions(moved(data, X=X))
    assert answers.orthogonal.holds
    assert answers.parallel.holds
    assert answers.equal_scores.holds
    assert answers.paired.number == pytest.approx(1e-3, rel=1e-3)
    assert not answers.fourth


def test_an_even_number_of_tokens_does_not_pair():
    paired = check_token_assumptions(gaussian_tokens(3, 4, 7, seed=0)).paired
    assert (paired.holds, paired.number, paired.says) == (False, np.inf, "tokens do not pair: L is even")


def test_pairs_are_found_in_any_order_and_c_has_its_range():
    data = aligned_tokens(2, 9, 5, seed=3, ratio=0.4)
    order = np.random.default_rng(0).permutation(9)
    assert check_token_assumptions(moved(data, X=data.X[:, order])).paired.number < 1e-13
    X = np.array([[[1.0, 0.0], [-1.5, 1.0], [-1.5, -1.0]]])
    outside = TokenData(X, np.array([[1.0, 0.0]]), np.ones(1), np.array([1.0, 0.0]))
    assert check_token_assumptions(outside).paired.number == np.inf
    assert "c = -1.5" in check_token_assumptions(outside).paired.says


def test_unequal_scores_and_inseparable_data_are_reported_with_numbers():
    answers = check_token_assumptions(gaussian_tokens(6, 5, 2, seed=0, spread=0.1))
    assert not answers.equal_scores.holds
    assert 0.1 < answers.equal_scores.number <= 0.2
    assert not answers.separable.holds
    assert "cannot be separated together" in answers.separable.says
    assert answers.aligned is None
    text = repr(answers)
    assert len(text.splitlines()) == 8
    assert "equal scores        no" in text


def test_the_number_of_separability_is_a_margin_that_is_reached():
    data = gaussian_tokens(4, 5, 8, seed=0)
    answers = check_token_assumptions(data)
    assert answers.separable.holds
    assert answers.separable_diagonal.holds
    assert 0 < answers.separable_diagonal.number < np.linalg.norm(data.features, axis=2).min()
