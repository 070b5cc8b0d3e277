"""The entry on the initial scale at the quick size, the degenerate data it is about, and that spoilt runs refute."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.initial_scale import degenerate_tokens, least_entropy
from saddlescope.reproduction import find_entry
from saddlescope.theory.attention.svm import l1_svm

NAME = "softmax-attention/initial-scale"
ENTRY = find_entry(NAME)


def test_the_claims_hold(run, outcomes):
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in found.keys() - {"smaller-is-not-better"}} == {
        "reproduced"
    }  # that is of two seeds


@pytest.mark.parametrize(
    ("variable", "value", "claim"),
    [
        ("conditioned_apart", 1e-3, "independent"),
        ("spread", 1e-4, "degenerate-depends"),
        ("objective", 1e-3, "degenerate-global"),
        ("entropy_error", 1e-3, "least-entropy"),
        ("rescaled", 1e-3, "common-factor"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, variable, value, claim):
    run[variable] = run[variable] * 0 + value
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_a_gain_from_small_scales_would_be_seen(run, outcomes):
    run.raw_error.values[:, -1] = run.raw_error.values[:, 0] / [[100.0], [110.0]]
    assert outcomes(ENTRY, run)["smaller-is-not-better"] == "refuted"


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


def test_scales_out_of_order_are_refused_at_once():
    with pytest.raises(InputError, match="scales must be two or more numbers, each between 1e-100 and 10, decreasing"):
        ENTRY.configure("quick", {"scales": "0.1,0.3"})
