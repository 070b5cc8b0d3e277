"""The errata of section 4 and appendices C, D and E, each checked by hand in exact arithmetic."""

from fractions import Fraction

import mpmath
import numpy as np

from saddlescope.papers.concept_learning.shared.authors_programs import PROGRAMS
from saddlescope.theory.concepts import check_assumptions, largest_start, lemma_d3_time


def _exact(rows):
    return np.array([[Fraction(*one) for one in row] for row in rows], object)


def _step_of_d2(A, W, eta):
    return W + eta * (A @ W + W @ A) - eta / 2 * (A @ W @ W + W @ W @ A + 2 * W @ A @ W)


def test_d2_is_half_of_the_flow_and_lacks_the_square_of_the_gradient():
    """U − η g makes W + η (−g Uᵀ − U gᵀ) + η² g gᵀ, g the gradient of 4.1; D.2 at 2 η has the first two terms."""
    A, eta = _exact([[(1, 2), (0, 1)], [(0, 1), (2, 1)]]), Fraction(1, 100)
    U = _exact([[(1, 3), (1, 5)], [(-1, 4), (1, 2)]])
    error = U @ U.T - np.eye(2, dtype=int)
    g = (A @ error + error @ A) @ U
    step = U - eta * g
    assert np.all(step @ step.T == _step_of_d2(A, U @ U.T, 2 * eta) + eta**2 * g @ g.T)


def test_theorem_4_1_sums_over_all_directions_and_its_noise_needs_bars():
    """With s = 1 of d = 2 the row w_1 obeys dw/dt = (a(1 − w_11), 0): w_12 stays, and the printed sum drops it."""
    decay = mpmath.exp(-1)
    assert 1 * decay * 0 + 1 * 1 == 1 != decay * 0  # f_1 at z = (0, 1): over d, and over s
    assert -decay * 1 > -1 * 1  # w_11(0) = −1, μ = 1


def test_corollary_d1_and_what_its_square_excludes():
    """At the starts of the assumptions N_22 = w_12² (a_1 + a_2) may reach (Pβω)², P times the printed bound."""
    a = np.array([0.1, 1.0])
    best = largest_start(a, beta=2.0, K=20.0, kappa=1.11)
    start = np.array([[2.0, 1.0], [1.0, 2.0]])
    constants = {"K": 20.0, "kappa": 1.11, "C": 2.0, "step": 1 / 180}
    for more in (2e-5, 1.0, 100.0):
        for less in (2.1e-5, 10.0, 1000.0):
            tried = constants | {"log_P": best.log_P + more, "log_scale": best.log_omega - more - less}
            assert not check_assumptions(a, start, corrected=True, **tried).hold
    printed = constants | {"log_P": best.log_P + 2e-5, "log_scale": best.log_omega - 2.1e-5}
    assert check_assumptions(a, start, **printed).hold
    assert not check_assumptions(np.append(0.0, a), np.ones((3, 3)) + np.eye(3), **printed).hold  # D.1: d > s


def test_a_step_of_d2_lowers_the_determinant_of_small_maps():
    """The ratio w_11 w_22 / w_12² falls by its exact factor; a start next to a singular one becomes indefinite."""
    a, eta, tiny = (Fraction(1, 10), Fraction(1)), Fraction(1, 180), Fraction(1, 10**40)
    W = tiny * np.array([[1 + Fraction(1, 10**6), 1], [1, 1]], object)
    after = _step_of_d2(np.diag(np.array(a, object)), W, eta)
    first, second = (one[0, 0] * one[1, 1] / one[0, 1] ** 2 for one in (W, after))
    factor = 1 - (eta * (a[1] - a[0]) / (1 + eta * (a[0] + a[1]))) ** 2
    assert abs(second / first - factor) < Fraction(1, 10**35)
    assert first > 1 > second


def test_steps_in_the_proofs_of_d4_d5_d7_and_d8():
    kappa, w, level = 1.11, 1e-60, 0.4
    t0 = lemma_d3_time(np.log(w), 1.0, log_phase=np.log(level), kappa=kappa)  # in time of the flow: 4 a t for 2 η a t
    lower = w * np.exp(4 * t0 / kappa)
    np.testing.assert_allclose(np.log(lower), (1 - kappa**-2) * np.log(w) + kappa**-2 * np.log(level), rtol=1e-12)
    assert lower < 1e-10 * level
    a_j, alpha, C = Fraction(1), Fraction(1), Fraction(2)
    a_i = 3 * a_j + alpha / C  # equality in D.5
    growth = (a_i + a_j) - Fraction(8, 10) * (3 * a_i + a_j) / 2
    assert growth == -alpha / (5 * C) > -alpha / C  # D.59 and D.60


def test_the_programs_of_figures_8_and_9_have_other_data_than_the_captions():
    assert PROGRAMS["Figure 8"].mu != (1.0, 1.5, 2.2)
    assert PROGRAMS["Figure 9"].sigma != (0.05, 0.05, 0.05, 0.5)
