"""Equation 4.3: the corrected statements hold, the printed ones do not, and spoilt runs refute."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.reproduction import find_entry
from saddlescope.theory.concepts import update_terms

NAME = "concept-learning/equation-4-3"
ENTRY = find_entry(NAME)
REFUTED = {"printed"}
BY_SIZE = {"noise-size"}  # of ten starts


def test_corrected_statements_hold_and_printed_ones_do_not(run, outcomes):
    expected = {claim.name: "refuted" if claim.name in REFUTED else "reproduced" for claim in ENTRY.claims}
    found = outcomes(ENTRY, run)
    assert {name: found[name] for name in found if name not in BY_SIZE} == {
        name: outcome for name, outcome in expected.items() if name not in BY_SIZE
    }


def test_without_noise_the_diagonal_is_logistic_as_the_entry_says():
    """dW/dt = 2 (G - S) entry by entry, integrated, against log(1 / w_kk(0) - 1) / (4 a_k)."""
    a, U = np.array([0.3, 1.0]), np.array([[0.1, 0.05], [0.2, -0.1]])
    W0 = U @ U.T
    last = np.log(1 / np.diag(W0) - 1) / (4 * a)

    def velocity(_, w):
        terms = update_terms(a, np.diag(w))  # G and S of the diagonal need nothing else
        return 2 * np.diag(terms.growth - terms.suppression)

    w = solve_ivp(velocity, (0, last.max()), np.diag(W0), rtol=1e-10, atol=1e-12, t_eval=np.sort(last)).y
    np.testing.assert_allclose([w[k, np.argsort(last).tolist().index(k)] for k in range(2)], 0.5, atol=1e-7)


def test_the_errors_without_noise_are_what_the_schur_complements_say(run):
    late = (run.schur_time - run.bare_time).isel(scale=slice(1, None)).values
    np.testing.assert_allclose(late[0], late[1], atol=1e-3)  # whatever the scale
    assert np.all(late > -1e-12)
    strongest = int(np.argmax(run.strength.values))
    np.testing.assert_allclose(late[..., strongest], 0, atol=1e-9)


def other_identity(run):
    run.identity_error[0] = 2e-12


def other_law(run):
    run.log_det_error[0, 0] = 2e-10


def other_drift(run):
    run.drift[0, 0] = 2e-10


def other_closed_form(run):
    run["rank_one_error"] = run.rank_one_error + 2e-9


def smaller_with_scale(run):
    run.bare_time[-1] = (run.bare_time + run.found_time)[-1] / 2


def lasting_in_parts(run):
    run.bare_time[:] = 1.1 * run.found_time


def no_noise(run):
    run.noise_share[:] *= 0.1


def other_stages(run):
    run.schur_time[-1] += 0.01


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (other_identity, "identity"),
        (other_law, "log-det"),
        (other_drift, "log-det"),
        (other_closed_form, "rank-one"),
        (smaller_with_scale, "noise-lasting"),
        (lasting_in_parts, "noise-omitted"),
        (no_noise, "noise-size"),
        (other_stages, "schur"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"scales": "1e-5,1e-3"}, "scales must be two or more numbers, each between 1e-07 and 0.1, decreasing"),
        ({"weights": "0"}, "weights must be at least 1"),
        ({"mu": "1"}, "mu must be 2 to 6 positive numbers"),
    )
