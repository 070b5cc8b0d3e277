"""Token data: the definitions of the paper's section 3.1, on small exact cases and against the model as written."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models import SelectionLoss, TokenData, gaussian_tokens, load_tokens

SMALL = {
    "X": np.array([[[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]], [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]]),
    "z": np.array([[1.0, -1.0], [2.0, 0.5]]),
    "y": np.array([1.0, -1.0]),
    "v": np.array([1.0, 2.0]),  # the scores are 1, 4, 5 and -2, -1, -6
}


def test_exact_values_of_a_small_case():
    data = TokenData(**SMALL)
    np.testing.assert_array_equal(data.scores, [[1, 4, 5], [-2, -1, -6]])
    np.testing.assert_array_equal(data.optimal, [2, 1])
    np.testing.assert_array_equal(data.others, [[0, 1], [0, 2]])
    np.testing.assert_array_equal(data.optimal_scores, [5, -1])
    np.testing.assert_array_equal(data.gaps, [[4, 1], [1, 5]])
    np.testing.assert_array_equal(data.differences, [[[2, 1], [3, -1]], [[1, -1], [-1, -2]]])
    np.testing.assert_array_equal(data.features, [[[2, -1], [3, 1]], [[2, -0.5], [-2, -1]]])
    np.testing.assert_array_equal(data.margins([1.0, 10.0]), [[-8, 13], [-3, -12]])
    np.testing.assert_array_equal(data.margins([[0.0, 1.0], [0.0, 0.0]]), [[-2, -3], [0.5, -0.5]])
    assert (data.samples, data.tokens, data.dim) == (2, 3, 2)


def test_margins_are_differences_of_attention_scores_for_every_kind_of_weights():
    data, rng = gaussian_tokens(3, 4, 5, seed=2), np.random.default_rng(0)
    K, Q, beta = rng.normal(size=(5, 2)), rng.normal(size=(5, 2)), rng.normal(size=5)
    for weights, W in (((K, Q), K @ Q.T), (K @ Q.T, K @ Q.T), (beta, np.diag(beta))):
        for i in range(3):
            attention = data.X[i] @ W @ data.z[i]
            expected = attention[data.optimal[i]] - attention[data.others[i]]
            np.testing.assert_allclose(data.margins(weights)[i], expected, atol=1e-13)


def test_gaps_that_differ_by_rounding_are_equal_and_others_stay():
    X, z, y, v = (np.array(SMALL[name]) for name in "Xzyv")
    X[0, 0] = X[0, 1] * (1 + 2e-16) + np.array([2.0, -1.0]) * 1e-16
    np.testing.assert_array_equal(np.ptp(TokenData(X, z, y, v).gaps, axis=1), [0, 4])
    X[0, 0] = X[0, 1] * (1 + 1e-12)
    assert np.ptp(TokenData(X, z, y, v).gaps[0]) == pytest.approx(4e-12, rel=1e-3)


def test_a_permutation_of_tokens_permutes_everything():
    data = gaussian_tokens(3, 5, 4, seed=5, spread=0.4)
    order = np.random.default_rng(1).permutation(5)
    other = TokenData(data.X[:, order], data.z, data.y, data.v)
    np.testing.assert_array_equal(order[other.optimal], data.optimal)
    for i in range(3):
        places = [list(data.others[i]).index(order[k]) for k in other.others[i]]
        np.testing.assert_array_equal(other.gaps[i], data.gaps[i, places])
        np.testing.assert_array_equal(other.features[i], data.features[i, places])


def test_both_label_signs_give_the_same_scores():
    data = gaussian_tokens(3, 4, 4, seed=1)
    other = TokenData(data.X, data.z, -data.y, -data.v)
    np.testing.assert_array_equal(other.scores, data.scores)


def test_least_loss_of_both_kinds():
    data = TokenData(**SMALL)
    for kind, least in (("exponential", np.exp([-5, 1])), ("logistic", np.log1p(np.exp([-5, 1])))):
        assert SelectionLoss(data.optimal_scores, data.gaps, kind).least == pytest.approx(least.mean(), rel=1e-15)


def test_arrays_are_copies_that_cannot_be_written():
    given = {name: np.array(value) for name, value in SMALL.items()}
    data = TokenData(**given)
    given["X"][:] = 0
    assert data.X[0, 0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0, 0] = 3


def test_integers_and_single_precision_are_accepted(tmp_path):
    arrays = {name: np.asarray(value, np.float32) for name, value in SMALL.items()} | {"y": np.array([1, -1])}
    np.savez(tmp_path / "data.npz", **arrays)
    data = load_tokens(tmp_path / "data.npz")
    assert all(getattr(data, name).dtype == float for name in "Xzyv")
    np.testing.assert_array_equal(data.X, SMALL["X"])


def test_files_that_are_no_token_data(tmp_path):
    with pytest.raises(InputError, match=r"path must be an existing \.npz file"):
        load_tokens(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(InputError, match=r"must be an \.npz file"):
        load_tokens(tmp_path / "text.npz")
    np.save(tmp_path / "one.npy", SMALL["X"])
    with pytest.raises(InputError, match="got one array"):
        load_tokens(tmp_path / "one.npy")
    np.savez(tmp_path / "some.npz", X=SMALL["X"], z=SMALL["z"])
    with pytest.raises(InputError, match="with X, z, without y, v"):
        load_tokens(tmp_path / "some.npz")
    np.savez(tmp_path / "pickled.npz", **SMALL | {"y": np.array([1, None], dtype=object)})
    with pytest.raises(InputError, match="without pickled objects"):
        load_tokens(tmp_path / "pickled.npz")
