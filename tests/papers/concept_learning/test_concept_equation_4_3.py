"""Equation 4.3: times without the noise term."""

import numpy as np
from scipy.integrate import solve_ivp

from saddlescope.reproduction import find_entry
from saddlescope.theory.concepts import update_terms

NAME = "concept-learning/equation-4-3"
ENTRY = find_entry(NAME)


def test_outcomes_at_the_quick_size(run, outcomes):
    assert outcomes(ENTRY, run) == {"noise-omitted": "agrees", "noise-lasting": "seen"}


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
    np.testing.assert_allclose(run.schur_time[-1], run.found_time[-1], atol=1e-3)
