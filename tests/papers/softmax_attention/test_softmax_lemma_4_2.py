"""Lemma 4.2: the minimum that refutes it as printed is one, and spoilt runs refute the other claims."""

import numpy as np
import pytest
from scipy.optimize import minimize

from saddlescope._shared.errors import InputError
from saddlescope.models import SelectionLoss, TokenData, attention_loss, gaussian_tokens, separability
from saddlescope.papers.softmax_attention.lemma_4_2 import strict_minimum
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/lemma-4-2"
ENTRY = find_entry(NAME)


def test_the_lemma_needs_diagonal_separability(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found["as-printed"] == "refuted"
    for claim in ("with-diagonal-separability", "gradient-vanishes", "no-stationary-point"):
        assert found[claim] == "reproduced"


def test_the_smallest_counterexample_has_no_diagonal_features():
    data = TokenData(np.array([[[0.0, 1.0], [0.0, 0.0]]]), np.array([[1.0, 0.0]]), np.ones(1), np.array([0.0, 1.0]))
    np.testing.assert_array_equal(data.features, 0)
    assert separability(data).separable


def test_the_minimum_is_one_of_the_softmax_loss():
    import jax

    seed = next(s for s in range(100) if not separability(gaussian_tokens(4, 5, 3, seed=s), diagonal=True).separable)
    data = gaussian_tokens(4, 5, 3, seed=seed)
    loss, naive = SelectionLoss(data.optimal_scores, data.gaps), attention_loss(data)
    gradient = jax.jit(jax.grad(naive))
    beta = minimize(lambda x: float(naive(x)), np.zeros(3), jac=lambda x: np.asarray(gradient(x)), method="BFGS").x
    found = strict_minimum(loss, data.features, beta)
    assert found is not None
    assert np.abs(np.asarray(gradient(found))).max() < 1e-12
    assert np.linalg.eigvalsh(np.asarray(jax.hessian(naive)(found)))[0] > 0
    assert strict_minimum(loss, data.features, beta * 1.001) is None  # not there yet


def test_no_minimum_is_found_where_there_is_none():
    data = gaussian_tokens(3, 4, 12, seed=0)
    assert separability(data, diagonal=True).separable
    assert strict_minimum(SelectionLoss(data.optimal_scores, data.gaps), data.features, np.zeros(12)) is None


def spoil_growth(run):
    run["size"].values[-1, -1] = 1.5 * run["size"].values[-1, -2]


def spoil_gradient(run):
    run.slowness.values[-1, -1] = 20.0 * run.slowness.values[-1, -2]


def spoil_inequality(run):
    run.violations.values[-1] = 1


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (spoil_growth, "with-diagonal-separability"),
        (spoil_gradient, "gradient-vanishes"),
        (spoil_gradient, "gradient-law"),
        (spoil_inequality, "no-stationary-point"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_flows_that_did_not_arrive_decide_nothing(run, outcomes):
    run["size"].values[-1, -1] = run.slowness.values[-1, -1] = np.nan
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in ("with-diagonal-separability", "gradient-vanishes", "gradient-law")} == {
        "undecided"
    }


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"log10_times": "2,30"}, "log10_times must contain 2, 30 and 300"),
        ({"dim": "3"}, "dim must be above low_dim=3"),
        ({"small_gap": "0"}, "small_gap must be positive"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
